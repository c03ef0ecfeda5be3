"""Merges streams of rows ordered by time. A stream is opened when the merge reaches its first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.query.scan.rows.conditions.evaluate import Ints


@dataclass(frozen=True, slots=True)
class TimedStream:
    """Batches of one schema, ordered by time. No row comes before `first_ns` in that order."""

    first_ns: int
    open: Callable[[], Iterator[pa.RecordBatch]]


class _Active:
    """An opened stream with the rest of its current batch. Times are negated for descending order, so they ascend."""

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
        """Remove the rows up to that time from the batch, and return them with their times."""
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
    """The rows of all streams, ordered by time. Rows of equal times are in the order of the streams.

    A stream is opened only after all rows that must precede it were yielded, and never after the limit is reached.
    """
    sign = -1 if newest_first else 1
    waiting = sorted(enumerate(streams), key=lambda numbered: (sign * numbered[1].first_ns, numbered[0]))
    active: list[_Active] = []
    left = limit
    while (waiting or active) and left != 0:
        # A stream that may begin at or before the first row must be opened before that row is yielded.
        first = min((int(stream.times[0]) for stream in active), default=None)
        while waiting and (first is None or sign * waiting[0][1].first_ns <= first):
            number, stream = waiting.pop(0)
            opened = _Active(number, stream.open(), time_column, sign)
            if opened.batch is not None:
                active.append(opened)
                first = int(opened.times[0]) if first is None else min(first, int(opened.times[0]))
        if not active:
            continue
        batch = _next(active, sign * waiting[0][1].first_ns if waiting else None)
        active = [each for each in active if each.batch is not None]
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch


def _next(active: list[_Active], unopened: int | None) -> pa.RecordBatch:
    """All rows that no later row can precede."""
    active.sort(key=lambda stream: stream.number)
    # The rows up to the earliest end of a batch are complete. After that end, its stream may have more.
    until = min(int(stream.times[-1]) for stream in active)
    included = len(active) == 1
    if unopened is not None and unopened <= until:
        until, included = unopened, False
    parts = [part for stream in list(active) if (part := stream.cut(until, included=included)) is not None]
    if not parts:
        # All remaining rows up to `until` have exactly that time. They may continue in further batches.
        parts = _one_moment(active, until)
    if len(parts) == 1:
        return parts[0][0]
    order = np.argsort(np.concatenate([times for _, times in parts]), kind="stable")
    table = pa.Table.from_batches([batch for batch, _ in parts]).combine_chunks()
    whole = table.to_batches()[0]
    return whole if bool((order[1:] > order[:-1]).all()) else whole.take(pa.array(order))


def _one_moment(active: list[_Active], moment: int) -> list[tuple[pa.RecordBatch, Ints]]:
    """All rows with that time, stream by stream, also those in further batches."""
    parts = []
    for stream in active:
        while stream.batch is not None and int(stream.times[0]) == moment:
            part = stream.cut(moment, included=True)
            assert part is not None
            parts.append(part)
    return parts
