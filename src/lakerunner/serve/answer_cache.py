"""An in-memory cache of answers. An entry is valid while the segments that it was computed from are live.

Each entry is stored as a single byte string. Its size is then exact, and no small objects are scattered over the heap,
where they would stop the allocator from returning freed memory to the system.
"""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.query.series.results import QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.stats import QueryStats

#: Estimated memory of an entry besides its content: the key, which holds the query text, and the entry object.
_ENTRY_BYTES = 1_000


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Identifies an answer: two queries with equal keys have the same answer."""

    org_id: uuid.UUID
    language: str
    #: The query in canonical form, so that whitespace and number spellings do not matter.
    text: str
    times: QueryTimes
    lookback_ms: int
    #: Hash of the live segments that the query reads.
    fingerprint: str
    #: The coarsest tier that may have been read: sums over tiers may differ in their last digit.
    max_tier_s: int = 0
    #: Whether sketches may have been read.
    approximate: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    #: The pickled result and stats. Pickle is safe here because the bytes never leave this process.
    content: bytes
    stored_at_s: float

    @property
    def size_bytes(self) -> int:
        return len(self.content) + _ENTRY_BYTES


class AnswerCache:
    """An LRU cache of answers, bounded in bytes. Thread-safe."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[AnswerKey, _Entry] = OrderedDict()
        self._bytes = 0

    def get(self, key: AnswerKey) -> tuple[QueryResult, QueryStats] | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if self._clock() - entry.stored_at_s > self._ttl_s:
                self._drop(key)
                return None
            self._entries.move_to_end(key)
        answer: tuple[QueryResult, QueryStats] = pickle.loads(entry.content)
        return answer

    def put(self, key: AnswerKey, result: QueryResult, stats: QueryStats) -> None:
        content = pickle.dumps((result, stats), pickle.HIGHEST_PROTOCOL)
        entry = _Entry(content, self._clock())
        # A single large answer must not evict all others.
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
