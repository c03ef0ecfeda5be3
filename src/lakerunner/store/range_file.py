"""An object of the store as a file that can be read anywhere, for readers that need only parts of a large one."""

from __future__ import annotations

import io

import pyarrow as pa

from lakerunner.store.object_store import ObjectStore

#: Smaller objects are fetched whole: one request instead of many.
WHOLE_BYTES = 16 << 20


class RangeFile(io.RawIOBase):
    """Every read is a request, so the reader should ask for large pieces."""

    def __init__(self, store: ObjectStore, key: str, size_bytes: int) -> None:
        self._store = store
        self._key = key
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size_bytes - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        found = self._store.get_range(self._key, self._at, wanted)
        self._at += len(found)
        return found


def open_object(store: ObjectStore, key: str) -> pa.NativeFile:
    """The object, fetched now if it is small, else read when and where it is needed."""
    size_bytes = store.head(key).size_bytes
    if size_bytes <= WHOLE_BYTES:
        return pa.BufferReader(store.get(key))
    return pa.PythonFile(RangeFile(store, key, size_bytes), mode="r")
