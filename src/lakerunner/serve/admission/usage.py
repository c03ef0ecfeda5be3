"""How much of the API's time each org has lately used: an org above its share goes to the slow lane."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

#: What an org may use of the fast lane on average, as a share of one core.
SHARE = 0.2
#: What it may use at once beyond that, in seconds: a dashboard that opens is no attack.
BURST_S = 1.0
#: An org that has asked nothing for so long is not there to be protected.
_AWAY_S = 60.0
_MAX_ORGS = 10_000


class Usage:
    """A bucket an org, that runs out at its share. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._levels: dict[uuid.UUID, tuple[float, float]] = {}
        self._asked_at: dict[uuid.UUID, float] = {}

    def asks(self, org_id: uuid.UUID) -> bool:
        """Note that the org asks; whether others do so, too. One that is alone may have everything."""
        now = self._clock()
        with self._lock:
            self._asked_at[org_id] = now
            if len(self._asked_at) > 1:
                self._asked_at = {org: at for org, at in self._asked_at.items() if now - at < _AWAY_S}
            return len(self._asked_at) > 1

    def spent(self, org_id: uuid.UUID, seconds: float) -> None:
        now = self._clock()
        with self._lock:
            if len(self._levels) >= _MAX_ORGS:
                self._levels = {org: kept for org, kept in self._levels.items() if _level(kept, now) > 0}
            # What a busy org runs up is forgiven within ten times the burst.
            level = min(_level(self._levels.get(org_id, (0.0, now)), now) + seconds, BURST_S + 10 * BURST_S * SHARE)
            self._levels[org_id] = level, now

    def is_busy(self, org_id: uuid.UUID) -> bool:
        with self._lock:
            return _level(self._levels.get(org_id, (0.0, 0.0)), self._clock()) > BURST_S


def _level(kept: tuple[float, float], now: float) -> float:
    level, at = kept
    return max(0.0, level - SHARE * (now - at))
