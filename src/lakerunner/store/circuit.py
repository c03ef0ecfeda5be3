"""A circuit: after failures in a row calls pause, then one of them tries whether the store is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lakerunner.runtime.metrics import STORE_CIRCUIT_OPEN


class Circuit:
    """Counts failures in a row; open means that nobody may call, half-open that one may.

    Every `admit()` that said yes must be followed by exactly one of `succeeded`, `failed`, `abandoned`.
    """

    def __init__(self, failures: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        #: When calls may be tried again; None while closed.
        self._opens_at: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """True from the failure that opened it until a call has succeeded."""
        with self._lock:
            return self._opens_at is not None

    def admit(self) -> bool:
        """Whether this call may go out now. While half-open, the first asker may and the others wait for it."""
        with self._lock:
            if self._opens_at is None:
                return True
            if self._probing or self._clock() < self._opens_at:
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
            # A call that was under way when the circuit opened does not prolong the pause; a failed probe does.
            if self._probing or (self._opens_at is None and self._failures >= self._limit):
                self._set(self._clock() + self._pause_s)
            self._probing = False

    def abandoned(self) -> None:
        """The call ended without telling anything of the store (an interrupt): the next one may try."""
        with self._lock:
            self._probing = False

    def _set(self, opens_at: float | None) -> None:
        self._opens_at = opens_at
        STORE_CIRCUIT_OPEN.set(0 if opens_at is None else 1)
