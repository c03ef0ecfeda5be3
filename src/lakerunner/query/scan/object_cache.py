"""A bounded LRU cache of segment objects on the local disk. Every hit is checked for its size.

Readers check the pages' checksums when they decode them, and call `discard` if the copy is bad.

A file's name contains the hash of the object's key, its size and its etag; the file's mtime is its time of last use. So
only the folder must survive a restart.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import threading
import uuid
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

import pyarrow as pa

from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.query.metrics import CACHE_BYTES, CACHE_REQUESTS
from lakerunner.runtime.telemetry import log
from lakerunner.store.bucket import ObjectMeta
from lakerunner.store.object_store import CHUNK_BYTES, ObjectStore

_PART = ".part"
#: For a segment whose bytes are bad also when they come fresh from the store.
DAMAGED_HINT = "the object in the store is damaged, or not a segment"


@dataclass(frozen=True, slots=True)
class Cached:
    """An object. An open file stays readable, even if the object is evicted meanwhile."""

    #: The path on the disk, or the bytes themselves if they could not be written to the disk.
    content: Path | bytes
    size_bytes: int
    #: Whether it was in the cache before this request.
    hit: bool

    @property
    def source(self) -> Path | pa.BufferReader:
        """The path or buffer that Arrow reads."""
        return self.content if isinstance(self.content, Path) else pa.BufferReader(self.content)


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size_bytes: int


#: The result of a fetch: an entry, or the bytes if they could not be written to the disk.
_Fetched: TypeAlias = _Entry | bytes


class ObjectCache:
    """Caches immutable objects of one store. Safe to share between threads; each process needs its own folder."""

    def __init__(self, store: ObjectStore, folder: Path, limit_bytes: int) -> None:
        self._store = store
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._fetching: dict[str, Future[_Fetched]] = {}
        #: Bytes of entries and of fetches under way.
        self._held_bytes = 0
        self._reservations = 0
        #: Whether the last write to the disk succeeded.
        self._writable = True
        self._changed = threading.Condition()
        self._load()

    @property
    def size_bytes(self) -> int:
        with self._changed:
            return self._held_bytes

    def get(self, key: str) -> Cached:
        """The object, fetched if it is not cached. Concurrent callers share one fetch."""
        name = _name(key)
        with self._changed:
            entry = self._entries.get(name)
            if entry is not None and _intact(entry):
                self._entries.move_to_end(name)
                _touch(entry.path)
                CACHE_REQUESTS.labels("hit").inc()
                return Cached(entry.path, entry.size_bytes, hit=True)
            if entry is not None:
                self._drop(name)
            other_fetch = self._fetching.get(name)
            if other_fetch is None:
                own_fetch: Future[_Fetched] = Future()
                self._fetching[name] = own_fetch
        if other_fetch is not None:
            CACHE_REQUESTS.labels("joined").inc()
            return _missed(other_fetch.result())
        CACHE_REQUESTS.labels("miss").inc()
        return self._fetched(key, name, own_fetch)

    @property
    def is_remote(self) -> bool:
        """Whether the store is no folder of this machine."""
        return not self._store.config.url.startswith("file:")

    def has(self, key: str) -> bool:
        """Whether the object should be on the disk; the file is not checked."""
        return _name(key) in self._entries

    def find(self, key: str) -> Cached | None:
        """The object if it is on the disk. Never fetches."""
        with self._changed:
            entry = self._entries.get(_name(key))
            if entry is None or not _intact(entry):
                return None
            self._entries.move_to_end(_name(key))
            _touch(entry.path)
        CACHE_REQUESTS.labels("hit").inc()
        return Cached(entry.path, entry.size_bytes, hit=True)

    def discard(self, key: str) -> None:
        """Drop an object whose bytes turned out to be bad. The next request fetches it again."""
        with self._changed:
            if _name(key) in self._entries:
                CACHE_REQUESTS.labels("discarded").inc()
                self._drop(_name(key))

    def _fetched(self, key: str, name: str, own_fetch: Future[_Fetched]) -> Cached:
        try:
            fetched = self._fetch(key, name)
        except BaseException as error:
            # Waiting threads must get any error: a future that never completes would block them forever.
            with self._changed:
                del self._fetching[name]
            own_fetch.set_exception(error)
            raise
        with self._changed:
            del self._fetching[name]
            CACHE_BYTES.set(self._held_bytes)
        own_fetch.set_result(fetched)
        return _missed(fetched)

    def _fetch(self, key: str, name: str) -> _Fetched:
        meta = self._store.head(key)
        self._reserve(meta.size_bytes)
        entry: _Entry | None = None
        part = self._folder / f"{uuid.uuid4().hex}{_PART}"
        try:
            path = self._folder / f"{name}-{meta.size_bytes}-{_digest(meta.etag or '')}"
            with part.open("wb") as file:
                self._copy(key, meta, file)
            # No fsync: a file that a power cut truncated has the wrong size, and is fetched again.
            part.replace(path)
            entry = _Entry(path, meta.size_bytes)
            self._writable = True
            return entry
        except OSError as reason:
            self._cannot_keep(key, reason)
            return self._store.get(key)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            self._settle(name, entry, meta.size_bytes)

    def _cannot_keep(self, key: str, reason: OSError) -> None:
        """Handle a full or broken disk: requests are served from memory. Logged once, counted every time."""
        CACHE_REQUESTS.labels("unkept").inc()
        if self._writable:
            log().warning("cannot keep segments", key=key, folder=str(self._folder), reason=reason.strerror)
        self._writable = False
        if reason.errno in (errno.ENOSPC, errno.EDQUOT):
            with self._changed:
                # Evict the older half of the cache: other programs need the disk too, and so does the next fetch.
                goal_bytes = self._held_bytes // 2
                while self._entries and self._held_bytes > goal_bytes:
                    self._drop(next(iter(self._entries)))

    def _copy(self, key: str, meta: ObjectMeta, file: IO[bytes]) -> None:
        chunks = [self._store.get(key)] if meta.size_bytes <= CHUNK_BYTES else self._store.stream(key)
        written = sum(file.write(chunk) for chunk in chunks)
        if written != meta.size_bytes:
            raise Unavailable(f"cannot fetch {key!r}: received {written:,} of its {meta.size_bytes:,} bytes")

    def _reserve(self, size_bytes: int) -> None:
        """Evict entries until the object fits. One larger than the limit waits until no other fetch is under way."""
        with self._changed:
            while True:
                while self._entries and self._held_bytes + size_bytes > self._limit_bytes:
                    self._drop(next(iter(self._entries)))
                if not self._reservations or self._held_bytes + size_bytes <= self._limit_bytes:
                    break
                self._changed.wait()
            self._held_bytes += size_bytes
            self._reservations += 1

    def _settle(self, name: str, entry: _Entry | None, size_bytes: int) -> None:
        """Turn a reservation into an entry, or release it if there is none."""
        with self._changed:
            self._reservations -= 1
            if entry is None:
                self._held_bytes -= size_bytes
            else:
                self._entries[name] = entry
            self._changed.notify_all()

    def _drop(self, name: str) -> None:
        entry = self._entries.pop(name)
        self._held_bytes -= entry.size_bytes
        with contextlib.suppress(OSError):
            entry.path.unlink()

    def _load(self) -> None:
        """Load the files of an earlier process, least recently used first. Deletes unfinished fetches."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            found = [(entry.stat(), Path(entry.path)) for entry in os.scandir(self._folder) if entry.is_file()]
        except OSError as reason:
            raise BadInput(
                f"cannot use the cache folder {self._folder}: {reason.strerror}", where="query.cache_dir"
            ) from None
        for stat, path in sorted(found, key=lambda file: file[0].st_mtime_ns):
            name, _, rest = path.name.partition("-")
            size, _, etag = rest.partition("-")
            if size.isdecimal() and int(size) == stat.st_size and etag and name not in self._entries:
                self._entries[name] = _Entry(path, stat.st_size)
                self._held_bytes += stat.st_size
            elif path.suffix == _PART or size.isdecimal():
                path.unlink(missing_ok=True)
        with self._changed:
            while self._entries and self._held_bytes > self._limit_bytes:
                self._drop(next(iter(self._entries)))


def _missed(fetched: _Fetched) -> Cached:
    if isinstance(fetched, bytes):
        return Cached(fetched, len(fetched), hit=False)
    return Cached(fetched.path, fetched.size_bytes, hit=False)


def _intact(entry: _Entry) -> bool:
    try:
        return entry.path.stat().st_size == entry.size_bytes
    except OSError:
        return False


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)


def _name(key: str) -> str:
    return _digest(key)


@functools.lru_cache(4096)
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
