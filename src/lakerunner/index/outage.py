"""Not waiting again and again for an index that is known to be down: one asks, the others are told at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakerunner.model.errors import Unavailable

#: How long after a failure nobody asks at all.
_HOLD_S = 1.0


class Outage:
    """Whether there is one, as far as is known. Safe to share between threads."""

    def __init__(self, wait_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        #: How long one who asks may have to wait before it fails.
        self._wait_s = wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._reason: Unavailable | None = None
        self._ask_at = 0.0

    def enter(self) -> None:
        """Return when the caller should ask; raise what the last one met when it should not."""
        with self._lock:
            if self._reason is None:
                return
            now = self._clock()
            if now < self._ask_at:
                raise Unavailable(self._reason.message, hint=self._reason.hint, where=self._reason.where)
            self._ask_at = now + self._wait_s + _HOLD_S

    def met(self, reason: Unavailable) -> None:
        with self._lock:
            self._reason = reason
            self._ask_at = self._clock() + _HOLD_S

    def over(self) -> None:
        self._reason = None
