"""The request to stop, shared by all loops of a process."""

from __future__ import annotations

import threading


class Stop:
    """A flag that a signal or a failure sets once. Loops check it, and sleep with `wait` so that a stop wakes them."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def request(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep up to `timeout_s`, without end for None; return True at once when a stop is requested."""
        return self._event.wait(timeout_s)
