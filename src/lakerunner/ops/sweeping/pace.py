"""The pace of deleting: limits per second and per round, so that neither the store nor its bill suffers."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakerunner.runtime.stop import Stop


class Pace:
    """Counts the objects of one round. `take` waits where they would be too many."""

    def __init__(
        self, per_s: float, most: int, stop: Stop | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_s = per_s
        self._stop = Stop() if stop is None else stop
        self._clock = clock
        self._free_at_s = clock()
        self.left = most

    @property
    def is_over(self) -> bool:
        """Whether the round may delete no more, or should end."""
        return self.left <= 0 or bool(self._stop)

    def take(self, objects: int) -> bool:
        """Wait until that many may be deleted. False if the process should stop instead."""
        wait_s = self._free_at_s - self._clock()
        if wait_s > 0 and self._stop.wait(wait_s):
            return False
        self._free_at_s = max(self._free_at_s, self._clock()) + objects / self._per_s
        self.left -= objects
        return not self._stop
