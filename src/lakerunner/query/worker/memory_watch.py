"""A worker that has grown too large: its caches go first, then the process, and no answer with it."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakerunner.model.errors import LimitHit
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.metrics import WORKER_MEMORY, WORKER_RELIEFS
from lakerunner.runtime.memory import own_bytes, release_memory, trim
from lakerunner.runtime.settings import QuerySettings
from lakerunner.runtime.telemetry import log

#: How long a query that was stopped may take to let go of its memory before another one is.
_STOP_S = 1.0
#: How long nobody must have asked before freed memory goes back to the system.
TRIM_AFTER_S = 20.0


class MemoryWatch:
    """Looks at the memory of this process. Above the soft limit it lets caches go; what helps no more, it says."""

    def __init__(
        self,
        query: QuerySettings,
        workers: LocalWorkers,
        measured: Callable[[], int] = own_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._soft_bytes = query.worker_memory_bytes
        self._hard_bytes = query.worker_max_memory_bytes
        self._patience_s = query.worker_memory_patience_s
        self._workers = workers
        self._measured = measured
        self._clock = clock
        self._over_since: float | None = None
        self._stopped_at = -_STOP_S

    def look(self) -> str:
        """Why the process should be started anew; empty while it should not."""
        used_bytes = self._measured()
        WORKER_MEMORY.set(used_bytes)
        if used_bytes > self._hard_bytes:
            self._stop_largest(used_bytes)
        if used_bytes <= self._soft_bytes:
            self._over_since = None
            self._trim_when_idle()
            return ""
        if self._over_since is None:
            self._over_since = self._clock()
            self._relieve(used_bytes)
            return ""
        if self._clock() - self._over_since < self._patience_s:
            return ""
        return f"{used_bytes:,} bytes are more than {self._soft_bytes:,} (query.worker_memory_bytes), and stay so"

    def _trim_when_idle(self) -> None:
        """What requests freed goes back to the system once nobody has asked for a while.

        Not at once: a dashboard asks the same again, and fresh pages for its samples cost more than reading them.
        """
        budgets = self._workers.budgets
        if not len(budgets) and budgets.ended_at is not None and time.monotonic() - budgets.ended_at > TRIM_AFTER_S:
            budgets.ended_at = None
            trim()

    def _relieve(self, used_bytes: int) -> None:
        self._workers.forget()
        release_memory()
        WORKER_RELIEFS.inc()
        log().info("let caches go", used_bytes=used_bytes, left_bytes=self._measured())

    def _stop_largest(self, used_bytes: int) -> None:
        """One query at a time: mostly it is one that is too large, and the others should live. Then it has to end."""
        if self._clock() - self._stopped_at < _STOP_S:
            return
        self._stopped_at = self._clock()
        error = LimitHit(
            f"cannot go on with the scan: the worker holds more than {self._hard_bytes:,} bytes, and this query the "
            "most of them",
            hint="narrow the selectors or the time range, or raise query.worker_max_memory_bytes",
        )
        if self._workers.budgets.stop_largest(error):
            log().warning("stopped the largest query", used_bytes=used_bytes)
