"""Admission of queries: their limits, their turn, their listing while they run, and the charge to their org.

It knows neither a language nor HTTP: whatever wants to run a query of an org comes through here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TypeVar

from lakerunner.runtime.settings import ApiSettings, LimitSettings
from lakerunner.serve.admission.running import Running, RunningQuery
from lakerunner.serve.admission.turns import Turns
from lakerunner.serve.admission.usage import Usage
from lakerunner.serve.caller import Caller

T = TypeVar("T")
#: What a second of waiting counts as use of the API's process.
_WAITING_SHARE = 0.1


class Admission:
    def __init__(self, settings: ApiSettings) -> None:
        self.settings = settings
        self.running = Running()
        self.usage = Usage()
        self._turns = Turns(settings.threads, settings.org_queries, settings.org_waiting)

    def limits(self, caller: Caller) -> LimitSettings:
        """What the caller's org may ask for."""
        return self.settings.model_copy(update=dict(caller.limits)) if caller.limits else self.settings

    def listed(
        self, caller: Caller, kind: str, text: str, timeout_s: float | None = None
    ) -> AbstractContextManager[RunningQuery]:
        """List a query as running, for the time that its org allows or, where the client asks so, for less."""
        allowed_s = self.limits(caller).timeout_s
        return self.running.listed(caller, kind, text, min(timeout_s or allowed_s, allowed_s))

    def submit(self, query: RunningQuery, call: Callable[[RunningQuery], T]) -> Future[T]:
        """Run the call in a thread when the org's turn comes, and charge the org for it."""
        org_id = query.caller.org_id

        def timed() -> T:
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            try:
                query.begin()
                return call(query)
            finally:
                # Waiting counts little: the query waits for a worker, or for others on an overloaded machine.
                cpu_s, elapsed_s = time.thread_time() - began_cpu_s, time.monotonic() - began_s
                self.usage.spent(org_id, cpu_s + _WAITING_SHARE * (elapsed_s - cpu_s))

        return self._turns.submit(org_id, timed, self.limits(query.caller).org_queries)

    def charge(self, query: RunningQuery, worker_cpu_s: float) -> None:
        """Charge the org for what workers did for its query."""
        self.usage.spent(query.caller.org_id, worker_cpu_s)

    def close(self) -> None:
        self.running.cancel_all("the server stops")
        self._turns.close()
