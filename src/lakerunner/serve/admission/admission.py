"""Admission of queries: applies limits, schedules turns, lists running queries and charges usage to orgs.

Every query passes through admission, whatever its language and whether or not it came over HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import TypeVar

from lakerunner.runtime.settings import ApiSettings, LimitSettings
from lakerunner.serve.admission.running import Running, RunningQuery
from lakerunner.serve.admission.turns import Turns, Wake, at_once
from lakerunner.serve.admission.usage import Usage
from lakerunner.serve.caller import Caller

T = TypeVar("T")
#: Usage charged for each second that a query's thread spends waiting.
_WAITING_SHARE = 0.1


class Admission:
    """Runs the queries of all orgs within their limits."""

    def __init__(self, settings: ApiSettings) -> None:
        self.settings = settings
        self.running = Running()
        self.usage = Usage()
        self._turns = Turns(settings.threads, settings.org_queries, settings.org_waiting)

    def limits(self, caller: Caller) -> LimitSettings:
        """The limits of the caller's org: the settings, overridden by the org's own limits."""
        return self.settings.model_copy(update=dict(caller.limits)) if caller.limits else self.settings

    def listed(
        self, caller: Caller, kind: str, text: str, timeout_s: float | None = None
    ) -> AbstractContextManager[RunningQuery]:
        """List a query while it runs. Its timeout is the org's limit, or less if the client asks for less."""
        allowed_s = self.limits(caller).timeout_s
        return self.running.listed(caller, kind, text, min(timeout_s or allowed_s, allowed_s))

    def submit(self, query: RunningQuery, call: Callable[[RunningQuery], T], wake: Wake = at_once) -> Future[T]:
        """Run the call in a thread when the org's turn comes, and charge the org for it. `wake` as in `Turns`."""
        org_id = query.caller.org_id

        def timed() -> T:
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            try:
                query.begin()
                return call(query)
            finally:
                # Waiting is cheap: the query waits for a worker, or for a core of an overloaded machine.
                cpu_s, elapsed_s = time.thread_time() - began_cpu_s, time.monotonic() - began_s
                self.usage.spent(org_id, cpu_s + _WAITING_SHARE * (elapsed_s - cpu_s))

        return self._turns.submit(org_id, timed, self.limits(query.caller).org_queries, wake)

    def charge(self, query: RunningQuery, worker_cpu_s: float) -> None:
        """Charge the org for the CPU time that workers spent on its query."""
        self.usage.spent(query.caller.org_id, worker_cpu_s)

    def close(self) -> None:
        self.running.cancel_all("the server is stopping")
        self._turns.close()
