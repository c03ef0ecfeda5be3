"""Segments on the local disk: bounded, least recently used first out, and never trusted without a look.

A file's name tells the object, its size and its etag; the time of last use is the file's own. So nothing but the
folder itself must survive a restart.
"""

from __future__ import annotations

import contextlib
import errno
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


@dataclass(frozen=True, slots=True)
class Cached:
    """An object. A path stays readable while it is open, even if the object is evicted meanwhile."""

    #: Where it is on the disk; the bytes themselves where the disk could not take them.
    content: Path | bytes
    size_bytes: int
    #: Whether it was there before it was asked for.
    hit: bool

    @property
    def source(self) -> Path | pa.BufferReader:
        """What Arrow reads it from."""
        return self.content if isinstance(self.content, Path) else pa.BufferReader(self.content)


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size_bytes: int


#: What a fetch gave: an entry, or the bytes where the disk could not take them.
_Fetched: TypeAlias = _Entry | bytes


class ObjectCache:
    """Immutable objects of one store. Safe for threads; one process a folder."""

    def __init__(self, store: ObjectStore, folder: Path, limit_bytes: int) -> None:
        self._store = store
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._fetching: dict[str, Future[_Fetched]] = {}
        #: Of entries and of fetches under way.
        self._held_bytes = 0
        self._reservations = 0
        #: Whether the disk took what it was last given.
        self._keeps = True
        self._room = threading.Condition()
        self._load()

    @property
    def size_bytes(self) -> int:
        with self._room:
            return self._held_bytes

    def get(self, key: str) -> Cached:
        """The object, fetched if need be. Who asks for one that is being fetched waits for that."""
        name = _name(key)
        with self._room:
            entry = self._entries.get(name)
            if entry is not None and _intact(entry):
                self._entries.move_to_end(name)
                _touch(entry.path)
                CACHE_REQUESTS.labels("hit").inc()
                return Cached(entry.path, entry.size_bytes, hit=True)
            if entry is not None:
                self._drop(name)
            waiting = self._fetching.get(name)
            if waiting is None:
                mine: Future[_Fetched] = Future()
                self._fetching[name] = mine
        if waiting is not None:
            CACHE_REQUESTS.labels("joined").inc()
            return _missed(waiting.result())
        CACHE_REQUESTS.labels("miss").inc()
        return self._fetched(key, name, mine)

    def has(self, key: str) -> bool:
        """Whether the object is on the disk, as far as is known."""
        return _name(key) in self._entries

    def find(self, key: str) -> Cached | None:
        """The object if it is on the disk now; nothing is fetched."""
        with self._room:
            entry = self._entries.get(_name(key))
            if entry is None or not _intact(entry):
                return None
            self._entries.move_to_end(_name(key))
            _touch(entry.path)
        CACHE_REQUESTS.labels("hit").inc()
        return Cached(entry.path, entry.size_bytes, hit=True)

    def discard(self, key: str) -> None:
        """Forget an object whose bytes turned out to be bad. The next to ask fetches it anew."""
        with self._room:
            if _name(key) in self._entries:
                CACHE_REQUESTS.labels("discarded").inc()
                self._drop(_name(key))

    def _fetched(self, key: str, name: str, mine: Future[_Fetched]) -> Cached:
        try:
            fetched = self._fetch(key, name)
        except BaseException as error:
            # Whatever it is, those who wait must get it: a future that nobody ends would hold them for ever.
            with self._room:
                del self._fetching[name]
            mine.set_exception(error)
            raise
        with self._room:
            del self._fetching[name]
            CACHE_BYTES.set(self._held_bytes)
        mine.set_result(fetched)
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
            # Not synced: a file that a power cut left short has the wrong size, and is fetched again.
            part.replace(path)
            entry = _Entry(path, meta.size_bytes)
            self._keeps = True
            return entry
        except OSError as reason:
            self._cannot_keep(key, reason)
            return self._store.get(key)
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            self._settle(name, entry, meta.size_bytes)

    def _cannot_keep(self, key: str, reason: OSError) -> None:
        """The disk is full or broken. Who asks is answered all the same, from memory; told once, counted always."""
        CACHE_REQUESTS.labels("unkept").inc()
        if self._keeps:
            log().warning("cannot keep segments", key=key, folder=str(self._folder), reason=reason.strerror)
        self._keeps = False
        if reason.errno in (errno.ENOSPC, errno.EDQUOT):
            with self._room:
                # Of what we hold there, the older half: others need the disk as well, and the next fetch some of it.
                goal_bytes = self._held_bytes // 2
                while self._entries and self._held_bytes > goal_bytes:
                    self._drop(next(iter(self._entries)))

    def _copy(self, key: str, meta: ObjectMeta, file: IO[bytes]) -> None:
        chunks = [self._store.get(key)] if meta.size_bytes <= CHUNK_BYTES else self._store.stream(key)
        written = sum(file.write(chunk) for chunk in chunks)
        if written != meta.size_bytes:
            raise Unavailable(f"cannot fetch {key!r}: {written:,} of its {meta.size_bytes:,} bytes came")

    def _reserve(self, size_bytes: int) -> None:
        """Make room for an object. One that is larger than the limit is let in when nothing else is: alone."""
        with self._room:
            while True:
                while self._entries and self._held_bytes + size_bytes > self._limit_bytes:
                    self._drop(next(iter(self._entries)))
                if not self._reservations or self._held_bytes + size_bytes <= self._limit_bytes:
                    break
                self._room.wait()
            self._held_bytes += size_bytes
            self._reservations += 1

    def _settle(self, name: str, entry: _Entry | None, size_bytes: int) -> None:
        """End a reservation: as an entry, or as nothing."""
        with self._room:
            self._reservations -= 1
            if entry is None:
                self._held_bytes -= size_bytes
            else:
                self._entries[name] = entry
            self._room.notify_all()

    def _drop(self, name: str) -> None:
        entry = self._entries.pop(name)
        self._held_bytes -= entry.size_bytes
        with contextlib.suppress(OSError):
            entry.path.unlink()

    def _load(self) -> None:
        """What an earlier process left, oldest use first. Anything else there is a part of a fetch, or not ours."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            found = [(entry.stat(), Path(entry.path)) for entry in os.scandir(self._folder) if entry.is_file()]
        except OSError as reason:
            raise BadInput(
                f"cannot use the cache folder {self._folder}: {reason.strerror}", where="query.cache_dir"
            ) from None
        for stat, path in sorted(found, key=lambda one: one[0].st_mtime_ns):
            name, _, rest = path.name.partition("-")
            size, _, etag = rest.partition("-")
            if size.isdecimal() and int(size) == stat.st_size and etag and name not in self._entries:
                self._entries[name] = _Entry(path, stat.st_size)
                self._held_bytes += stat.st_size
            elif path.suffix == _PART or size.isdecimal():
                path.unlink(missing_ok=True)
        with self._room:
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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
