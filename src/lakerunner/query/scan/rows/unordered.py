"""Scans rows in any order: one batch per row group, several row groups at once. Aggregations read rows this way.

A batch has the columns that its segment has, with their stored types. Texts with a dictionary in the file keep it, so
that grouping and filtering can work once per distinct value. A requested column that the segment lacks is missing. The
metadata of the schema names the original keys of attributes.

Segments are opened, and their row groups pruned, before any values are read. A segment that turns out to be
damaged may have given the rows of some of its groups already; the tally names it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import pyarrow as pa

from lakerunner.model.errors import BadInput, Bug, LakeError, LimitHit, Unavailable
from lakerunner.query.scan.rows.conditions.evaluate import Ints
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING, leaves
from lakerunner.query.scan.rows.failures import Failures, OnError
from lakerunner.query.scan.rows.opened import BadSegment, OpenedSegment, RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally, Spend
from lakerunner.query.scan.rows.row_group.group import GroupReader
from lakerunner.query.scan.rows.row_group.match_rows import (
    Undecided,
    candidate_rows,
    compares_values,
    known_rows,
    matching_rows,
    rows_of_ids,
    undecided,
)
from lakerunner.query.scan.rows.row_group.rows import GroupRows, KeptForm, ReadableRows

T = TypeVar("T")
#: Pieces of work on other threads at once. If their bytes are on the disk, the caller's thread works beside them; else
#: there are more, because some wait.
_CORES = max(2, os.cpu_count() or 1)
_BESIDE, _AT_ONCE = _CORES - 1, max(4, _CORES)
#: Row groups that are chosen before they are read, so that no thread waits for the next one.
_READY = 2 * _CORES
#: How often a scan that waits for its threads checks whether the answer is still wanted.
_POLL_S = 0.1
#: Row groups with fewer rows are read on the caller's thread: a change of threads would take longer.
_SMALL_ROWS = 8_192
#: Row groups are read at once if page bounds leave no more rows, of no more columns and bytes: one or two pages of
#: each. With more bytes, kernels take most of the time, and another thread can run beside them.
_FEW_CANDIDATES, _FEW_COLUMNS, _FEW_BYTES = 32_768, 4, 64 << 10
#: With two cores, the caller's thread reads columns of so few bytes: a second thread would save no elapsed time,
#: because both wait for the interpreter's lock.
_LIGHT_BYTES = 1 << 17 if _CORES <= 2 else 0
#: Of a large segment, no more rows are read before some are given to the caller.
_MOST_CANDIDATES = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class _SegmentWork:
    """Open a segment, and choose the row groups to read."""

    segment: RowSegment


@dataclass(frozen=True, slots=True, eq=False)
class _GroupWork:
    """Read one row group. `left` is what statistics and filters did not decide; `known`, the rows if they are known."""

    segment: RowSegment
    number: int
    rows: int
    left: Undecided
    known: Ints | None
    #: Whether it takes little, and the bytes are on the disk.
    is_light: bool = False


_Work: TypeAlias = _SegmentWork | _GroupWork


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    """What a piece of work gave: what its rows were made into, and more work."""

    tally: RowTally
    made: Sequence[T] = ()
    more: Sequence[_GroupWork] = ()


def scan_unordered(
    opener: RowsOpener,
    segments: Sequence[RowSegment],
    scan: RowScan,
    spend: Spend,
    tally: RowTally,
    on_error: OnError,
    pool: Executor | None = None,
) -> Iterator[pa.RecordBatch]:
    """The matching rows of all segments, up to the limit of the scan. Without a pool, the caller's thread reads."""
    columns = None if scan.columns is None else (scan.signal.time_column, *scan.columns)
    left = scan.limit
    with closing(map_groups(opener, segments, scan, spend, tally, on_error, _columns(columns), pool)) as batches:
        for batch in batches:
            if left is not None and batch.num_rows >= left:
                yield batch.slice(0, left)
                return
            left = None if left is None else left - batch.num_rows
            yield batch


def map_groups(
    opener: RowsOpener,
    segments: Sequence[RowSegment],
    scan: RowScan,
    spend: Spend,
    tally: RowTally,
    on_error: OnError,
    make: Callable[[ReadableRows], T],
    pool: Executor | None = None,
    *,
    small: bool = False,
    form: KeptForm[T] | None = None,
) -> Generator[T]:
    """What `make` makes of the matching rows of each row group. It is called by several threads at once.

    A small scan took little the last time: the caller's thread reads what it has read before. With `form`, what was
    made of a row group is kept.
    """
    scan_of = _Unordered(opener, scan, spend, tally, on_error, make, pool, small=small, form=form)
    return scan_of.results(list(filter(scan.may_hold, segments)))


def _columns(columns: Sequence[str] | None) -> Callable[[ReadableRows], pa.RecordBatch]:
    return lambda rows: rows.batch(columns)


class _Unordered(Generic[T]):
    def __init__(
        self,
        opener: RowsOpener,
        scan: RowScan,
        spend: Spend,
        tally: RowTally,
        on_error: OnError,
        make: Callable[[ReadableRows], T],
        pool: Executor | None,
        *,
        small: bool,
        form: KeptForm[T] | None,
    ) -> None:
        self._form = form if scan.ids is None else None
        self._opener = opener
        self._scan = scan
        self._whole = scan.columns is None and scan.limit is None and scan.predicate == EVERYTHING
        self._read_after = scan.columns if scan.ids is None else None
        self._spend = spend
        self._tally = tally
        self._failures = Failures(opener, tally, on_error)
        self._make = make
        self._pool = pool
        self._small = small
        self._times = scan.times
        self._ids = None if scan.ids is None else (scan.signal.id_column, scan.ids)
        self._ended = False
        self._segments: deque[_SegmentWork] = deque()
        self._groups: deque[_GroupWork] = deque()
        #: With each piece of work, whether it began with fresh bytes.
        self._under_way: dict[Future[_Outcome[T]], tuple[_Work, bool]] = {}
        #: Held while another thread takes a piece of work: in between it is neither waiting nor under way.
        self._moving = threading.RLock()
        #: The bytes that each piece of work holds.
        self._held: dict[_Work, int] = {}

    def results(self, segments: Sequence[RowSegment]) -> Generator[T]:
        self._segments.extend(map(_SegmentWork, segments))
        try:
            while self._is_left():
                self._spend(sum(list(self._held.values())))
                if (work := self._next()) is not None:
                    self._start(work)
                    finished = {future for future in list(self._under_way) if future.done()}
                else:
                    finished, _ = wait(list(self._under_way), timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield from self._done(future, *self._under_way.pop(future))
        finally:
            # Not waited for: what is under way ends at its next check.
            self._ended = True
            for future in list(self._under_way):
                future.cancel()

    def _is_left(self) -> bool:
        with self._moving:
            return bool(self._segments or self._groups or self._under_way)

    def _next(self) -> _Work | None:
        """What to start now; None: enough is under way."""
        is_full = len(self._under_way) >= _AT_ONCE
        if self._segments and len(self._groups) < _READY and (not is_full or self._is_local(self._segments[0])):
            return self._segments.popleft()
        with self._moving:
            if not self._groups or (is_full and not self._is_local(self._groups[0])):
                return None
            return self._groups.popleft()

    def _is_local(self, work: _Work) -> bool:
        """Whether the caller's thread may do it too, because there is nothing to wait for."""
        return self._pool is None or self._opener.is_hot(work.segment)

    def _start(self, work: _Work) -> None:
        if self._pool is not None and not self._is_quick(work):
            self._submit(self._pool, work)
            return
        future: Future[_Outcome[T]] = Future()
        is_fresh = self._failures.is_refreshed(work.segment)
        try:
            future.set_result(self._run(work))
        except LakeError as error:
            future.set_exception(error)
        self._under_way[future] = work, is_fresh

    def _submit(self, pool: Executor, work: _Work) -> None:
        is_fresh = self._failures.is_refreshed(work.segment)
        future = pool.submit(self._run_timed, work)
        self._under_way[future] = work, is_fresh
        future.add_done_callback(lambda _: self._go_on(pool))

    def _is_quick(self, work: _Work) -> bool:
        """Whether the caller's thread does it: a change of threads would take longer, or the other threads are busy."""
        if self._small and self._opener.is_known(work.segment):
            return True
        if isinstance(work, _GroupWork) and self._is_small(work):
            return True
        is_last = not self._groups and not self._under_way
        return self._is_local(work) and (isinstance(work, _SegmentWork) or is_last or len(self._under_way) >= _BESIDE)

    def _is_small(self, work: _GroupWork) -> bool:
        return work.is_light or work.rows < _SMALL_ROWS

    def _done(self, future: Future[_Outcome[T]], work: _Work, is_fresh: bool) -> Iterator[T]:
        held_bytes = self._held.pop(work, 0)
        try:
            outcome = future.result()
        except (BadInput, Bug, LimitHit):
            raise
        except LakeError as error:
            # If the caller has ended the scan, this raises: the segment is not to blame.
            self._spend(0)
            if self._is_worth_a_retry(work, error, is_fresh):
                self._again(work)
            return
        self._tally.add(outcome.tally)
        self._groups.extend(outcome.more)
        if outcome.made:
            self._held[work] = held_bytes
            yield from outcome.made
            del self._held[work]

    def _again(self, work: _Work) -> None:
        if isinstance(work, _SegmentWork):
            self._segments.appendleft(work)
        else:
            self._groups.appendleft(work)

    def _is_worth_a_retry(self, work: _Work, error: LakeError, is_fresh: bool) -> bool:
        """Whether fresh bytes may help. If not, the segment is left out."""
        if work.segment.segment_id in self._tally.failed:
            return False
        if isinstance(error, BadSegment):
            # Another group of the segment may have failed first, while this one was under way.
            return (not is_fresh and self._failures.is_refreshed(work.segment)) or self._failures.refreshed(error)
        self._failures.leave_out(work.segment, error)
        return False

    # -- on any thread -------------------------------------------------------------------------------------------

    def _go_on(self, pool: Executor) -> None:
        """Read another row group on a thread that has read one: the caller's thread may be busy with its own."""
        with self._moving:
            if self._ended or len(self._under_way) > _AT_ONCE or not self._groups:
                return
            work = self._groups.popleft()
            try:
                if not self._is_small(work) and self._is_local(work):
                    self._submit(pool, work)
                    return
            except RuntimeError:
                # The pool takes no more, because the process ends: the caller's thread goes on.
                pass
            self._groups.appendleft(work)

    def _run_timed(self, work: _Work) -> _Outcome[T]:
        began_s = time.thread_time()
        outcome = self._run(work)
        outcome.tally.cpu_s = time.thread_time() - began_s
        return outcome

    def _run(self, work: _Work) -> _Outcome[T]:
        def spend(held_bytes: int) -> None:
            if self._ended:
                raise Unavailable("cannot continue the scan: its reader has gone")
            self._held[work] = held_bytes
            self._spend(sum(list(self._held.values())))

        spend(0)
        if isinstance(work, _SegmentWork):
            return self._chosen_groups(work, spend)
        return self._read(work, spend)

    def _chosen_groups(self, work: _SegmentWork, spend: Spend) -> _Outcome[T]:
        """The row groups to read. Those of which a few rows are wanted, and which rows is known, are read at once."""
        tally = RowTally()
        more: list[_GroupWork] = []
        made: list[T] = []
        read_rows = 0
        condition = self._opener.condition_of(self._scan, work.segment)
        times = () if self._scan.covers(work.segment) else self._times
        with closing(self._opener.open(work.segment, tally, whole=self._whole)) as opened:
            for number in range(opened.footer.metadata.num_row_groups):
                spend(0)
                tally.groups += 1
                group = GroupReader(opened, number, spend, tally, self._read_after)
                left = undecided(group, times, condition, tally)
                if left.is_nothing:
                    continue
                if self._form is not None and (kept := group.kept_form(condition, self._form.what)) is not None:
                    made.append(kept[0])
                    tally.rows_found += kept[1]
                    continue
                known = known_rows(group, left, self._ids)
                if known is not None and not len(known):
                    tally.pruned_by_ids += self._ids is not None
                elif known is not None and len(known) < _SMALL_ROWS:
                    made += self._made(group, left, known, tally)
                elif (
                    known is None
                    and read_rows < _MOST_CANDIDATES
                    and (few := self._few_candidates(group, left, opened)) is not None
                ):
                    read_rows += len(few)
                    made += self._made(group, left, None, tally, few)
                else:
                    is_light = opened.is_local and self._is_light(group, left)
                    more.append(_GroupWork(work.segment, number, group.rows, left, known, is_light))
        return _Outcome(tally, made, more)

    def _is_light(self, group: GroupReader, left: Undecided) -> bool:
        """Whether reading the columns of the row group takes less than two threads that wait for each other's lock."""
        if self._scan.columns is None or not _LIGHT_BYTES or not compares_values(left):
            return False
        names = {self._scan.signal.time_column, *self._scan.columns}
        names |= {name for leaf in leaves(left.predicate) for name in leaf.ref.names()}
        return group.stored_bytes(names) <= _LIGHT_BYTES

    def _few_candidates(self, group: GroupReader, left: Undecided, opened: OpenedSegment) -> Ints | None:
        """The rows that may satisfy the condition, if reading them takes less than a change of threads."""
        columns = self._scan.columns
        if self._ids is not None or columns is None or not opened.is_local:
            return None
        if sum(name in opened.footer.fields for name in columns) > _FEW_COLUMNS:
            return None
        rows = candidate_rows(group, left)
        if rows is None or len(rows) > _FEW_CANDIDATES:
            return None
        wanted_bytes = group.stored_bytes((self._scan.signal.time_column, *columns)) * len(rows) // group.rows
        return rows if wanted_bytes <= _FEW_BYTES else None

    def _read(self, work: _GroupWork, spend: Spend) -> _Outcome[T]:
        tally = RowTally()
        if work.segment.segment_id in self._tally.failed:
            return _Outcome(tally)
        with closing(self._opener.open(work.segment, tally)) as opened:
            tally.segments_opened = 0  # Counted when its groups were chosen.
            group = GroupReader(opened, work.number, spend, tally, self._read_after)
            made = self._made(group, work.left, work.known, tally)
        spend(sum(each.nbytes for each in made if isinstance(each, pa.RecordBatch)))
        return _Outcome(tally, made)

    def _made(
        self,
        group: GroupReader,
        left: Undecided,
        known: Ints | None,
        tally: RowTally,
        candidates: Ints | None = None,
    ) -> list[T]:
        if self._ids is None:
            rows = matching_rows(group, left, tally, known, candidates)
        else:
            rows = rows_of_ids(group, left, self._ids, tally, known)
        tally.rows_found += len(rows)
        if not len(rows):
            return []
        exact = left.exact if self._ids is None else None
        form = self._form
        keeps = form is not None and not left.times and group.keeps_form(left.condition, form.what)
        made = self._make(GroupRows(group, rows, exact, again=known is not None, is_kept=keeps))
        if made is None:
            return []
        if form is not None and keeps:
            kept = group.keep_form(left.condition, form.what, len(rows), partial(_formed, form, made))
            return [made if kept is None else kept]
        return [made]


def _formed(form: KeptForm[T], made: T) -> tuple[T | None, int]:
    """What is kept of what was made, and its size."""
    kept = form.of(made)
    return kept, 0 if kept is None else form.size_bytes(kept)
