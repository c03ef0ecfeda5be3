"""The query API's role: its process and lifecycle."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from starlette.routing import BaseRoute

from lakerunner.index.orgs import has_several_orgs
from lakerunner.index.role import IndexedRole
from lakerunner.query.lake import open_lake
from lakerunner.query.metrics import QUERY_METRICS
from lakerunner.runtime.kernels import Share, load_kernels
from lakerunner.runtime.memory import limit_malloc_arenas, trim
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.thread_switch import switch_threads_often
from lakerunner.serve.api import Api
from lakerunner.serve.app import api_routes
from lakerunner.serve.auth import Authenticator
from lakerunner.serve.first_query import ask_first
from lakerunner.serve.kernels import api_kernels
from lakerunner.serve.lanes.slow import SlowLane
from lakerunner.serve.latency_objective import LatencyObjective
from lakerunner.serve.metrics import API_METRICS

#: How often freed memory is returned to the system: while the API is idle, and while it is busy.
_TRIM_S, _TRIM_BUSY_S = 3.0, 60.0
_LOOK_S = 1.0
_DRAIN_POLL_S = 0.05


class QueryApi(IndexedRole):
    name = "query-api"
    sentence = "Answer queries: the HTTP APIs of Prometheus, Loki and Tempo, streams, and live tails."
    registries = (API_METRICS, QUERY_METRICS)
    fail_fast = True

    @classmethod
    def kernels(cls) -> Sequence[Share]:
        return api_kernels()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        limit_malloc_arenas()
        auth = Authenticator(self.database, required=settings.auth.required, patience_s=settings.query.index_patience_s)
        self._lake = open_lake(settings, self.database)
        self._api = Api.over(
            settings.api, self._lake, auth, settings.delete.wait_s, settings.ruler, settings.derive.max_rules
        )
        self._lane = SlowLane(settings) if settings.api.slow_lane else None

    def start(self) -> None:
        super().start()
        switch_threads_often()
        load_kernels(api_kernels())
        ask_first(self._lake)
        # What is here stays: the collector need not look at it again and again.
        gc.freeze()
        if self._lane is not None and self.database.read(has_several_orgs):
            self._lane.start()

    def run(self, stop: Stop) -> None:
        trimmed_at = time.monotonic()
        objective = LatencyObjective(self.database, self.settings.monitor.query_target_s)
        while not stop.wait(_LOOK_S):
            objective.tick(datetime.now(UTC))
            # Memory that queries freed lies between cached answers, so the allocator keeps it. Trimming the heap blocks
            # concurrent allocations, so it happens while the API is idle, and seldom otherwise.
            age_s = time.monotonic() - trimmed_at
            if age_s > (_TRIM_S if self._api.admission.running.idle else _TRIM_BUSY_S):
                trim()
                trimmed_at = time.monotonic()
        self._drain()

    def _drain(self) -> None:
        """Go on answering until load balancers have noticed, and then until the queries under way have ended."""
        began_s = time.monotonic()
        quiet_at_s = began_s + self.settings.http.drain_s
        last_s = max(quiet_at_s, began_s + self.settings.api.finish_s)
        running = self._api.admission.running
        while (now_s := time.monotonic()) < quiet_at_s or (not running.idle and now_s < last_s):
            time.sleep(_DRAIN_POLL_S)

    def patience_s(self) -> Mapping[str, float]:
        return {"index": self.settings.query.index_patience_s}

    def routes(self) -> Sequence[BaseRoute]:
        return api_routes(self._api, self._lane)

    def close(self) -> None:
        if self._lane is not None:
            self._lane.close()
        self._api.close()
        self._lake.close()
        super().close()
