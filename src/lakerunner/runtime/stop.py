"""The wish to stop, shared by every loop of a process."""

from __future__ import annotations

import threading


class Stop:
    """Set once, by a signal or a failure; loops look at it and sleep on it instead of on the clock."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def request(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        """Sleep up to that long; True at once when stopping was asked for."""
        return self._event.wait(timeout_s)
