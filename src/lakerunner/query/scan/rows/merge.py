"""Streams of rows in the order of time made one. Streams open when the order reaches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.query.scan.rows.evaluate import Ints


@dataclass(frozen=True, slots=True)
class TimedStream:
    """Batches of one schema in the order of time. None of its rows comes before `first_ns` in that order."""

    first_ns: int
    open: Callable[[], Iterator[pa.RecordBatch]]


class _Active:
    """A stream that was opened, with what is left of its batch. Times are turned so that they ascend."""

    def __init__(self, number: int, batches: Iterator[pa.RecordBatch], time_column: str, sign: int) -> None:
        self.number = number
        self._batches = batches
        self._time_column = time_column
        self._sign = sign
        self.batch: pa.RecordBatch | None = None
        self.times: Ints = np.zeros(0, np.int64)
        self.advance()

    def advance(self) -> None:
        for batch in self._batches:
            if batch.num_rows:
                self.batch = batch
                self.times = self._sign * batch.column(self._time_column).cast(pa.int64()).to_numpy()
                return
        self.batch = None

    def cut(self, until: int, *, included: bool) -> tuple[pa.RecordBatch, Ints] | None:
        """The rows up to that time, which leave the batch."""
        assert self.batch is not None
        count = int(np.searchsorted(self.times, until, side="right" if included else "left"))
        if not count:
            return None
        part = self.batch.slice(0, count), self.times[:count]
        self.batch, self.times = self.batch.slice(count), self.times[count:]
        if not len(self.times):
            self.advance()
        return part


def merge_ordered(
    streams: Sequence[TimedStream], time_column: str, *, newest_first: bool, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of all streams in the order of time; rows of one moment in the order of the streams.

    A stream is opened when all rows that surely come before it are out, and never once the limit is reached.
    """
    sign = -1 if newest_first else 1
    waiting = sorted(enumerate(streams), key=lambda one: (sign * one[1].first_ns, one[0]))
    active: list[_Active] = []
    left = limit
    while (waiting or active) and left != 0:
        # A stream that begins where the first row lies must be open before that row goes out.
        first = min((int(one.times[0]) for one in active), default=None)
        while waiting and (first is None or sign * waiting[0][1].first_ns <= first):
            number, stream = waiting.pop(0)
            opened = _Active(number, stream.open(), time_column, sign)
            if opened.batch is not None:
                active.append(opened)
                first = int(opened.times[0]) if first is None else min(first, int(opened.times[0]))
        if not active:
            continue
        batch = _next(active, sign * waiting[0][1].first_ns if waiting else None)
        active = [one for one in active if one.batch is not None]
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch


def _next(active: list[_Active], unopened: int | None) -> pa.RecordBatch:
    """All rows that nothing still to come precedes."""
    active.sort(key=lambda one: one.number)
    # Every open stream has its rows up to the end of its batch; after the least of those ends, one may have more.
    until = min(int(one.times[-1]) for one in active)
    included = len(active) == 1
    if unopened is not None and unopened <= until:
        until, included = unopened, False
    parts = [part for one in list(active) if (part := one.cut(until, included=included)) is not None]
    if not parts:
        # All rows left up to there share that one time. Streams with no more of them go by themselves.
        parts = _one_moment(active, until)
    if len(parts) == 1:
        return parts[0][0]
    order = np.argsort(np.concatenate([times for _, times in parts]), kind="stable")
    table = pa.Table.from_batches([batch for batch, _ in parts]).combine_chunks()
    whole = table.to_batches()[0]
    return whole if bool((order[1:] > order[:-1]).all()) else whole.take(pa.array(order))


def _one_moment(active: list[_Active], moment: int) -> list[tuple[pa.RecordBatch, Ints]]:
    """Every row of the moment, stream by stream, also those of further batches."""
    parts = []
    for one in active:
        while one.batch is not None and int(one.times[0]) == moment:
            part = one.cut(moment, included=True)
            assert part is not None
            parts.append(part)
    return parts
