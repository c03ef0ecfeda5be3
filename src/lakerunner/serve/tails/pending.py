"""Entries that wait for a reader, up to a bound. What a slow reader has no room for is dropped, named and counted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
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
    _taken: asyncio.Event = field(default_factory=asyncio.Event)

    def begin_with(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add the entries that the reader asked for at the start. There is room for all of them."""
        for batch in batches:
            self._add(batch)

    async def put(self, batch: pa.RecordBatch, until_s: float) -> None:
        """Add entries as the reader makes room. Those that have none when the loop's time is `until_s` are dropped."""
        while batch.num_rows:
            fits = min(self._room(batch), batch.num_rows)
            self._add(batch.slice(0, fits))
            batch = batch.slice(fits)
            if batch.num_rows and not await self._taken_before(until_s):
                self.drop(batch, batch.num_rows)
                return

    def drop(self, first: pa.RecordBatch, entries: int) -> None:
        """Note that so many entries were dropped; `first` are the first of them."""
        named = sum(each.num_rows for each in self._dropped)
        if named < _MAX_NAMED:
            # A copy: a slice would keep the whole batch.
            few = first.slice(0, _MAX_NAMED - named)
            self._dropped.append(few.take(pa.array(range(few.num_rows), pa.int64())))
        self._dropped_entries += entries
        self._arrived.set()

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
            self._bytes -= batch.nbytes
            if batch.num_rows > left:
                rest = batch.slice(left)
                self._batches.appendleft(rest)
                self._bytes += rest.nbytes
                batch = batch.slice(0, left)
            taken.append(batch)
            left -= batch.num_rows
        self._entries -= most - left
        piece = Piece(taken, self._dropped, self._dropped_entries)
        self._dropped, self._dropped_entries = [], 0
        self._taken.set()
        return piece

    def _room(self, batch: pa.RecordBatch) -> int:
        """How many entries of a batch there is room for. A single one may exceed the bytes."""
        if self._bytes >= self.max_bytes:
            return 0
        entry_bytes = max(batch.nbytes / batch.num_rows, 1.0)
        return max(min(self.max_entries - self._entries, int((self.max_bytes - self._bytes) / entry_bytes) or 1), 0)

    def _add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)
            self._entries += batch.num_rows
            self._bytes += batch.nbytes
            self._arrived.set()

    async def _taken_before(self, until_s: float) -> bool:
        """Wait until the reader takes something. False: it did not in time."""
        self._taken.clear()
        try:
            async with asyncio.timeout_at(until_s):
                await self._taken.wait()
        except TimeoutError:
            return False
        return True
