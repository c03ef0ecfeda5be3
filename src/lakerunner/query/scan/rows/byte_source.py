"""Reads bytes of a segment's object: from its copy on the disk, or in ranges from the store."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from lakerunner.query.scan.rows.request import RowTally
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store.object_store import ObjectStore

#: Start and length.
Range: TypeAlias = tuple[int, int]
#: Ranges with at most this gap are read in one request: the gap costs less than a second request.
_GAP_BYTES = 16 << 10


class ByteSource(Protocol):
    size_bytes: int

    def read(self, ranges: Sequence[Range], tally: RowTally) -> list[bytes]:
        """The bytes of each range, counted in the tally."""
        ...

    def close(self) -> None: ...


class LocalBytes:
    """A whole object, on the disk or in memory."""

    def __init__(self, content: Path | bytes, size_bytes: int, *, counted: bool) -> None:
        self._bytes = content if isinstance(content, bytes) else None
        self._file: int | None = None
        if not isinstance(content, bytes):
            # Opened now, so that the file stays readable if the cache evicts it.
            self._file = os.open(content, os.O_RDONLY)
        self.size_bytes = size_bytes
        #: Whether reads count in the tally. False if fetching the whole object was counted already.
        self._counted = counted

    def read(self, ranges: Sequence[Range], tally: RowTally) -> list[bytes]:
        if self._counted:
            tally.read_bytes += sum(length for _, length in ranges)
        found = [self._piece(start, length) for start, length in ranges]
        check_lengths(found, ranges)
        return found

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __del__(self) -> None:
        self.close()

    def _piece(self, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise ValueError("a range lies outside the object")
        if not length:
            # A column without a dictionary requests an empty range.
            return b""
        if self._bytes is not None:
            return self._bytes[start : start + length]
        assert self._file is not None
        return os.pread(self._file, length, start)


class RangedBytes:
    """Ranges of an object in the store. Recently read ranges are cached in memory, shared by all scans."""

    def __init__(self, store: ObjectStore, key: str, size_bytes: int, cached: ByteLru[bytes], generation: int) -> None:
        self._store = store
        self._key = key
        self._cached = cached
        self._generation = generation
        self.size_bytes = size_bytes
        self.fetched_bytes = 0

    def read(self, ranges: Sequence[Range], tally: RowTally) -> list[bytes]:
        # A column without a dictionary requests an empty range.
        found = {span: self._cached.get((self._key, self._generation, *span)) if span[1] else b"" for span in ranges}
        missing = sorted(span for span, body in found.items() if body is None)
        tally.hits += len(found) - len(missing)
        started = time.perf_counter()
        for start, end, members in _joined(missing):
            body = self._store.get_range(self._key, start, end - start)
            tally.read_bytes += end - start
            tally.misses += 1
            self.fetched_bytes += end - start
            for span in members:
                piece = body[span[0] - start : span[0] - start + span[1]]
                found[span] = piece
                self._cached.put((self._key, self._generation, *span), piece, len(piece))
        tally.fetch_s += time.perf_counter() - started
        pieces = [found[span] or b"" for span in ranges]
        check_lengths(pieces, ranges)
        return pieces

    def close(self) -> None:
        pass


def check_lengths(pieces: Sequence[bytes], ranges: Sequence[Range]) -> None:
    if any(len(piece) != length for piece, (_, length) in zip(pieces, ranges, strict=True)):
        raise ValueError("the object is shorter than its footer says")


def _joined(ranges: Sequence[Range]) -> list[tuple[int, int, list[Range]]]:
    """The start, end and ranges of each request to the store."""
    joined: list[tuple[int, int, list[Range]]] = []
    for start, length in ranges:
        if joined and start - joined[-1][1] <= _GAP_BYTES:
            begin, end, members = joined[-1]
            joined[-1] = (begin, max(end, start + length), [*members, (start, length)])
        else:
            joined.append((start, start + length, [(start, length)]))
    return joined
