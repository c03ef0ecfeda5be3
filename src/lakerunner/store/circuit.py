"""A circuit breaker: failures in a row pause all calls, then one call probes whether the store is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakerunner.runtime.metrics import STORE_CIRCUIT_OPEN


class Circuit:
    """Counts failures in a row. While open, no call may go out; while half-open, one may.

    Every `admit()` that returned True must be followed by exactly one of `succeeded`, `failed`, `trip`, `abandoned`.
    """

    def __init__(self, failures: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        #: When a probe may go out; None while the circuit is closed.
        self._probe_at: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """True from the failure that opened the circuit until a call has succeeded."""
        with self._lock:
            return self._probe_at is not None

    def admit(self) -> bool:
        """Return whether this call may go out now. While half-open, only the first caller may."""
        with self._lock:
            if self._probe_at is None:
                return True
            if self._probing or self._clock() < self._probe_at:
                return False
            self._probing = True
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failures = 0
            self._probing = False
            self._set(None)

    def failed(self) -> None:
        with self._lock:
            self._failures += 1
            # A call that was running when the circuit opened does not prolong the pause; a failed probe does.
            if self._probing or (self._probe_at is None and self._failures >= self._limit):
                self._set(self._clock() + self._pause_s)
            self._probing = False

    def trip(self) -> None:
        """The call showed that the store serves nobody: open at once, without waiting for more failures."""
        with self._lock:
            self._failures = self._limit
            self._probing = False
            self._set(self._clock() + self._pause_s)

    def abandoned(self) -> None:
        """The call ended without evidence about the store (an interrupt): the next call may probe."""
        with self._lock:
            self._probing = False

    def _set(self, probe_at: float | None) -> None:
        self._probe_at = probe_at
        STORE_CIRCUIT_OPEN.set(0 if probe_at is None else 1)
