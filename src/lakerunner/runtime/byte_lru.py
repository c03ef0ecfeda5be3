"""An in-memory cache that is bounded by bytes and evicts the least recently used entries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

#: How many keys of entries that were offered once are remembered.
_MAX_OFFERED = 20_000


class ByteLru(Generic[T]):
    """A least-recently-used cache with a limit in bytes. Safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._offered: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def has(self, key: Hashable) -> bool:
        """Whether the entry is there. This does not count as a use of it."""
        return key in self._entries

    def is_known(self, key: Hashable) -> bool:
        """Whether the entry was offered before, so that the next offer stores it."""
        return bool(self._limit_bytes) and key in self._offered

    def offer(self, key: Hashable, thing: T, size_bytes: int) -> None:
        """Store the entry if it was offered before: one-off reads must not evict hot entries."""
        if self.ask(key):
            self.put(key, thing, size_bytes)

    def ask(self, key: Hashable) -> bool:
        """Note that there was a use for the entry, so that the next offer stores it; return whether that was known."""
        with self._lock:
            again = key in self._offered
            self._offered[key] = None
            self._offered.move_to_end(key)
            while len(self._offered) > _MAX_OFFERED:
                self._offered.popitem(last=False)
        return again

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._offered.clear()
            self._held_bytes = 0

    def put(self, key: Hashable, thing: T, size_bytes: int) -> None:
        with self._lock:
            if key in self._entries or size_bytes > self._limit_bytes:
                return
            self._entries[key] = (thing, size_bytes)
            self._held_bytes += size_bytes
            while self._held_bytes > self._limit_bytes:
                self._held_bytes -= self._entries.popitem(last=False)[1][1]
