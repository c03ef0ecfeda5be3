"""Gathers the rows of segments in their order: the next ones on other threads, while earlier ones are used."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as StillRunning
from typing import TypeAlias
from uuid import UUID

import pyarrow as pa

from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.query.scan.rows.request import RowSegment, RowTally, Spend
from lakerunner.query.scan.rows.time_slices import TooLarge

Gathered: TypeAlias = pa.RecordBatch | TooLarge | None
#: Reads the rows of a segment.
Gather: TypeAlias = Callable[[RowSegment, RowTally, Spend], Gathered]
#: Segments that are gathered at once, the caller's among them, and at most as many are ahead.
_AT_ONCE = max(2, os.cpu_count() or 1)
#: Larger objects are read when it is their turn: rows of several would take much memory.
_MOST_BYTES = 32 << 20
#: How often a caller that waits for rows checks whether they are still wanted.
_POLL_S = 0.1


class GatheredAhead:
    """The rows of segments, which are taken in this order; one may be taken again. Without a pool, none is ahead."""

    def __init__(self, pool: Executor | None, segments: Sequence[RowSegment], gather: Gather, spend: Spend) -> None:
        self._pool = pool
        self._waiting = list(segments) if pool is not None else []
        self._gather = gather
        self._spend = spend
        self._ended = False
        self._under_way: dict[UUID, tuple[Future[Gathered], RowTally]] = {}
        #: The bytes that each segment under way holds.
        self._held: dict[UUID, int] = {}

    def take(self, segment: RowSegment, tally: RowTally) -> Gathered:
        """The rows of a segment. Errors of reading them are raised here."""
        started = self._under_way.pop(segment.segment_id, None)
        self._waiting = [each for each in self._waiting if each.segment_id != segment.segment_id]
        self._start()
        if started is None:
            return self._gather(segment, tally, self.spend)
        future, of_segment = started
        while not future.done() and self._gather_next():
            pass
        while True:
            try:
                found = future.result(_POLL_S)
                break
            except StillRunning:
                self.spend(0)
            finally:
                if future.done():
                    self._held.pop(segment.segment_id, None)
        tally.add(of_segment)
        return found

    def spend(self, held_bytes: int) -> None:
        """Of the caller's thread, which holds so much beside what is under way."""
        self._spend(held_bytes + sum(list(self._held.values())))

    def close(self) -> None:
        # Not waited for: what is under way ends at its next check.
        self._ended = True
        for future, _ in self._under_way.values():
            future.cancel()

    def _start(self) -> None:
        """Have other threads gather the next segments, as many as are free beside the caller's."""
        running = sum(not future.done() for future, _ in self._under_way.values())
        while running < _AT_ONCE - 1 and (segment := self._next()) is not None:
            assert self._pool is not None
            tally = RowTally()
            self._under_way[segment.segment_id] = self._pool.submit(self._run, segment, tally), tally
            running += 1

    def _gather_next(self) -> bool:
        """Gather a segment on the caller's thread, which would wait else. False: there is none, or enough is ahead."""
        segment = self._next()
        if segment is None:
            return False
        future: Future[Gathered] = Future()
        tally = RowTally()
        try:
            future.set_result(self._run(segment, tally))
        except LakeError as error:
            future.set_exception(error)
        self._under_way[segment.segment_id] = future, tally
        self._start()
        return True

    def _next(self) -> RowSegment | None:
        is_possible = self._waiting and len(self._under_way) < _AT_ONCE and self._waiting[0].size_bytes <= _MOST_BYTES
        return self._waiting.pop(0) if is_possible else None

    def _run(self, segment: RowSegment, tally: RowTally) -> Gathered:
        def spend(held_bytes: int) -> None:
            if self._ended:
                raise Unavailable("cannot continue the scan: its reader has gone")
            self._held[segment.segment_id] = held_bytes
            self.spend(0)

        found = self._gather(segment, tally, spend)
        self._held[segment.segment_id] = found.nbytes if isinstance(found, pa.RecordBatch) else 0
        return found
