"""Keeps a worker's memory within its limits: first it empties caches, then it restarts the process after draining."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakerunner.model.errors import LimitHit
from lakerunner.query.fanout.local_workers import LocalWorkers
from lakerunner.query.metrics import WORKER_MEMORY, WORKER_RELIEFS
from lakerunner.runtime.memory import own_bytes, release_memory, trim
from lakerunner.runtime.settings import QuerySettings
from lakerunner.runtime.telemetry import log

#: How long a stopped query has to free its memory before another one is stopped.
_STOP_S = 1.0
#: How long the worker must be idle before freed memory goes back to the system.
TRIM_AFTER_S = 20.0


class MemoryWatch:
    """Watches the memory of this process. Above the soft limit it empties caches, then asks for a restart."""

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
        """Check the memory. Returns why the process should restart; empty if it should not."""
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
        return (
            f"{used_bytes:,} bytes are more than {self._soft_bytes:,} (query.worker_memory_bytes), "
            "although the caches were emptied"
        )

    def _trim_when_idle(self) -> None:
        """Return freed memory to the system once the worker has been idle for a while.

        Not at once: a dashboard repeats its queries, and fresh pages for its samples cost more than reading them.
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
        """Stop the largest query. One at a time: usually a single query is too large, and the others should survive."""
        if self._clock() - self._stopped_at < _STOP_S:
            return
        self._stopped_at = self._clock()
        error = LimitHit(
            f"cannot go on with the scan: the worker holds more than {self._hard_bytes:,} bytes, and this query "
            "holds most of them",
            hint="narrow the selectors or the time range, or raise query.worker_max_memory_bytes",
        )
        if self._workers.budgets.stop_largest(error):
            log().warning("stopped the largest query", used_bytes=used_bytes)
