"""Recent usage of the API's process by each org. An org above its share goes to the slow lane."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

#: How much of the fast lane an org may use on average, as a share of one core.
SHARE = 0.2
#: How much an org may use beyond its share in a burst, in seconds, for example to open a dashboard.
BURST_S = 1.0
#: An org without requests for this long is inactive and needs no protection.
_INACTIVE_S = 60.0
_MAX_ORGS = 10_000


class Usage:
    """One leaky bucket per org, which drains at the org's share. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: By the number of an org's id: level of its bucket, in seconds, and when it was measured.
        self._levels: dict[int, tuple[float, float]] = {}
        self._asked_at: dict[int, float] = {}

    def asks(self, org_id: uuid.UUID) -> bool:
        """Record a request of the org. Returns whether other orgs are active too: a sole org may use everything."""
        now = self._clock()
        with self._lock:
            self._asked_at[org_id.int] = now
            if len(self._asked_at) > 1:
                self._asked_at = {org: at for org, at in self._asked_at.items() if now - at < _INACTIVE_S}
            return len(self._asked_at) > 1

    def spent(self, org_id: uuid.UUID, seconds: float) -> None:
        now = self._clock()
        with self._lock:
            if len(self._levels) >= _MAX_ORGS:
                self._levels = {org: measured for org, measured in self._levels.items() if _level(measured, now) > 0}
            # The cap bounds how long a busy org must wait: its excess drains within ten times the burst.
            level = min(_level(self._levels.get(org_id.int, (0.0, now)), now) + seconds, BURST_S + 10 * BURST_S * SHARE)
            self._levels[org_id.int] = level, now

    def is_busy(self, org_id: uuid.UUID) -> bool:
        with self._lock:
            return _level(self._levels.get(org_id.int, (0.0, 0.0)), self._clock()) > BURST_S


def _level(measured: tuple[float, float], now: float) -> float:
    level, at = measured
    return max(0.0, level - SHARE * (now - at))
