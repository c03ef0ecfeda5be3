"""A circuit breaker for the index: while it is down, one caller tries it and the others fail at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakerunner.model.errors import Unavailable

#: After a failure, nobody tries the index for this long.
_PAUSE_S = 1.0


class IndexCircuit:
    """Remembers the last failure of the index until a call succeeds. Safe to share between threads."""

    def __init__(self, wait_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        #: How long a call to an unreachable index may take to fail.
        self._wait_s = wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._reason: Unavailable | None = None
        self._retry_at = 0.0

    def check(self) -> None:
        """Return when the caller may try the index; otherwise raise the last failure again."""
        with self._lock:
            if self._reason is None:
                return
            now = self._clock()
            if now < self._retry_at:
                raise Unavailable(self._reason.message, hint=self._reason.hint, where=self._reason.where)
            self._retry_at = now + self._wait_s + _PAUSE_S

    def failed(self, reason: Unavailable) -> None:
        with self._lock:
            self._reason = reason
            self._retry_at = self._clock() + _PAUSE_S

    def succeeded(self) -> None:
        self._reason = None
