"""Entries that wait for a reader, up to a bound. What does not fit is dropped and remembered."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

#: Entries and bytes that wait for a reader who is slower than the entries come.
_MAX_ENTRIES, _MAX_BYTES = 10_000, 16 << 20
#: Dropped entries that are named to the reader; the others are counted.
_MAX_NAMED = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """What a reader gets next: entries, and what was dropped before them."""

    batches: list[pa.RecordBatch]
    #: The first of the dropped entries, and how many there were.
    dropped: list[pa.RecordBatch]
    dropped_entries: int

    @property
    def entries(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


@dataclass(slots=True)
class Pending:
    """Belongs to one event loop."""

    max_entries: int = _MAX_ENTRIES
    max_bytes: int = _MAX_BYTES
    _batches: deque[pa.RecordBatch] = field(default_factory=deque)
    _entries: int = 0
    _bytes: int = 0
    _dropped: list[pa.RecordBatch] = field(default_factory=list)
    _dropped_entries: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, batch: pa.RecordBatch) -> None:
        """Add entries as far as there is room."""
        room = self.max_entries - self._entries if self._bytes < self.max_bytes else 0
        fits = batch.slice(0, max(room, 0))
        if fits.num_rows:
            self._batches.append(fits)
            self._entries += fits.num_rows
            self._bytes += fits.nbytes
        if fits.num_rows < batch.num_rows:
            self._drop(batch.slice(fits.num_rows))
        if batch.num_rows:
            self._arrived.set()

    def _drop(self, batch: pa.RecordBatch) -> None:
        named = sum(each.num_rows for each in self._dropped)
        if named < _MAX_NAMED:
            # A copy: a slice would keep the whole batch.
            few = batch.slice(0, _MAX_NAMED - named)
            self._dropped.append(few.take(pa.array(range(few.num_rows), pa.int64())))
        self._dropped_entries += batch.num_rows

    async def take(self, most: int, timeout_s: float) -> Piece | None:
        """The next entries, at most `most`; None if none came in time."""
        if not self._batches and not self._dropped_entries:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout_s)
            except TimeoutError:
                return None
        taken: list[pa.RecordBatch] = []
        left = most
        while self._batches and left:
            batch = self._batches.popleft()
            if batch.num_rows > left:
                self._batches.appendleft(batch.slice(left))
                batch = batch.slice(0, left)
            taken.append(batch)
            left -= batch.num_rows
        self._entries -= most - left
        self._bytes = sum(batch.nbytes for batch in self._batches)
        piece = Piece(taken, self._dropped, self._dropped_entries)
        self._dropped, self._dropped_entries = [], 0
        return piece
