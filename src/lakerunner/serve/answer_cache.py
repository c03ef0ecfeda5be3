"""Answers kept in memory: given again while the segments that they came from are the live ones.

Each is kept as one piece of bytes: its size is known and not guessed, and the many small objects that it is made of do
not lie scattered over the heap, between what queries use and free, and keep that from going back to the system.
"""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.query.lake_port import ScanStats
from lakerunner.query.series.results import QueryResult

#: What an entry takes beside its bytes: its key, with the query's text, and the entry itself.
_ENTRY_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Two queries with the same key have the same answer, as long as the fingerprint is the same."""

    org_id: uuid.UUID
    #: The canonical text: blanks and number spellings do not matter.
    text: str
    start_ms: int
    end_ms: int
    step_ms: int
    lookback_ms: int


@dataclass(frozen=True, slots=True)
class Kept:
    result: QueryResult
    stats: ScanStats


@dataclass(frozen=True, slots=True)
class _Entry:
    #: Pickled: it never leaves this process.
    content: bytes
    fingerprint: str
    kept_at_s: float

    @property
    def size_bytes(self) -> int:
        return len(self.content) + _ENTRY_BYTES


class AnswerCache:
    """The least recently used answers go first. Safe to share between threads."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[AnswerKey, _Entry] = OrderedDict()
        self._bytes = 0

    def get(self, key: AnswerKey, fingerprint: str) -> Kept | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry.fingerprint != fingerprint or self._clock() - entry.kept_at_s > self._ttl_s:
                self._drop(key)
                return None
            self._entries.move_to_end(key)
        return Kept(*pickle.loads(entry.content))

    def put(self, key: AnswerKey, fingerprint: str, result: QueryResult, stats: ScanStats) -> None:
        content = pickle.dumps((result, stats), pickle.HIGHEST_PROTOCOL)
        entry = _Entry(content, fingerprint, self._clock())
        # One answer must not empty the cache of all others.
        if entry.size_bytes > self._max_bytes // 8:
            return
        with self._lock:
            self._drop(key)
            self._entries[key] = entry
            self._bytes += entry.size_bytes
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: AnswerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size_bytes

    def __len__(self) -> int:
        return len(self._entries)
