"""Continues a stream of rows on another worker after the rows that were delivered already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import xxhash

from lakerunner.model.errors import Unavailable
from lakerunner.query.fanout.answer import EvaluateAnswer


@dataclass(slots=True)
class Delivered:
    """The rows that the client has: how many, and a hash of their times."""

    rows: int = 0
    _times: xxhash.xxh3_128 = field(default_factory=xxhash.xxh3_128)
    #: The times of the last batch are hashed when another one comes: nobody asks about an answer of one batch.
    _last: pa.Array | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._hash_last()
        self.rows += batch.num_rows
        self._last = next((column for column in batch.columns if pa.types.is_timestamp(column.type)), None)

    def _hash_last(self) -> None:
        if self._last is not None:
            self._times.update(self._last.cast(pa.int64()).fill_null(0).to_numpy().tobytes())
            self._last = None

    def copy(self) -> Delivered:
        self._hash_last()
        return Delivered(self.rows, self._times.copy())

    def same_as(self, other: Delivered) -> bool:
        self._hash_last()
        other._hash_last()
        return self.rows == other.rows and self._times.digest() == other._times.digest()


def resumed(
    parts: Iterable[pa.RecordBatch | EvaluateAnswer], delivered: Delivered
) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
    """The parts without the rows that were delivered. All workers return the rows of a request in the same order.

    The request names its segments, so no segment that arrives later changes the rows. But a segment that only one of
    the workers can read does, and then the rows cannot be continued.
    """
    # The caller adds what this yields.
    delivered, skipped = delivered.copy(), Delivered()
    for part in parts:
        if isinstance(part, EvaluateAnswer):
            if delivered.rows and (part.note["tally"]["failed"] or not skipped.same_as(delivered)):
                raise _other_rows()
            yield part
            continue
        to_skip = min(delivered.rows - skipped.rows, part.num_rows)
        if to_skip:
            skipped.add(part.slice(0, to_skip))
            if skipped.rows == delivered.rows and not skipped.same_as(delivered):
                raise _other_rows()
        # An empty batch has the columns of the answer.
        if to_skip < part.num_rows or not part.num_rows:
            yield part.slice(to_skip)


def _other_rows() -> Unavailable:
    return Unavailable("cannot continue the rows: one of the workers cannot read a segment", hint="ask again")
