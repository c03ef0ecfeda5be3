"""The queries that this process is running: caller, text, start time, and the flag that cancels each."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from prometheus_client import Histogram

from lakerunner.model.errors import LakeError, LimitHit, Missing
from lakerunner.serve.caller import Caller
from lakerunner.serve.metrics import API_QUERIES, API_SECONDS

#: Characters of a query's text in listings: enough to recognise the query.
_SHOWN_TEXT = 2_000
#: The most that a short query takes, in CPU time and in wall time.
_SHORT_CPU_S = 0.3
_SHORT_S = 1.5


@cache
def _seconds(kind: str, outcome: str) -> Histogram:
    """The histogram of these labels: there are few of them, and finding it takes prometheus_client several calls."""
    return API_SECONDS.labels(kind, outcome)


class Cancelled(LakeError):
    """The query was cancelled: its client disconnected, a request cancelled it, or the process is stopping."""

    code = "cancelled"


class TimedOut(LimitHit):
    """The query ran longer than its timeout."""

    code = "timeout"


class TooSlow(Exception):
    """The query used more of the fast lane than a query may. Not an error: it restarts in the slow lane."""


@dataclass
class RunningQuery:
    """One query. The evaluator calls `check` between nodes, the scanner between segments."""

    query_id: str
    caller: Caller
    kind: str
    text: str
    timeout_s: float
    started_at: float = field(default_factory=time.time)
    state: str = "waiting"
    _began_s: float = field(default_factory=time.monotonic)
    _turn_s: float = 0.0
    _turn_cpu_s: float = 0.0
    _thread: int = 0
    _cancelled: str | None = None
    _on_cancel: Callable[[], object] | None = None
    _hurries: bool = False

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def remaining_s(self) -> float:
        return max(self.timeout_s - self.elapsed_s, 0.0)

    def cancel(self, reason: str) -> None:
        self._cancelled = self._cancelled or reason
        if self._on_cancel is not None:
            self._on_cancel()

    def on_cancel(self, call: Callable[[], object]) -> None:
        """Register a function to call when the query is cancelled."""
        self._on_cancel = call

    def hurry(self) -> None:
        """Make `check` raise `TooSlow` once the query has run for longer than a short query. Waiting does not count."""
        self._hurries = True

    def begin(self) -> None:
        """Mark the query as running: its turn has come."""
        self.check()
        self.state = "running"
        if self._hurries:
            self._turn_s, self._turn_cpu_s = time.monotonic(), time.thread_time()
            self._thread = threading.get_ident()

    @property
    def cancelled(self) -> Cancelled | None:
        return Cancelled(f"cannot complete the query: {self._cancelled}") if self._cancelled else None

    def check(self) -> None:
        """Raise if the query must stop."""
        if (cancelled := self.cancelled) is not None:
            raise cancelled
        if self.elapsed_s > self.timeout_s:
            raise self.timed_out()
        if self._hurries and self._turn_s and self._is_long():
            raise TooSlow

    def _is_long(self) -> bool:
        # CPU time of the query's own thread: on an overloaded machine, every query takes long by wall time.
        own_thread = threading.get_ident() == self._thread
        cpu_s = time.thread_time() - self._turn_cpu_s if own_thread else 0.0
        return cpu_s > _SHORT_CPU_S or time.monotonic() - self._turn_s > _SHORT_S

    def timed_out(self) -> TimedOut:
        return TimedOut(
            f"cannot answer the query: it took longer than {self.timeout_s:g} s (api.timeout_s, or the timeout given)",
            hint="narrow the selectors or the time range",
        )

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.query_id,
            "org": str(self.caller.org_id),
            "key": self.caller.name,
            "kind": self.kind,
            "query": self.text[:_SHOWN_TEXT],
            "state": "stopping" if self._cancelled else self.state,
            "startedAt": self.started_at,
            "elapsedSeconds": round(self.elapsed_s, 3),
            "timeoutSeconds": self.timeout_s,
        }


class Running:
    """All running and waiting queries. A caller sees those of its org, an operator those of its orgs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, RunningQuery] = {}
        # Counted when somebody looks, and not twice in every query. The process has one of these.
        API_QUERIES.set_function(self._queries.__len__)

    @contextmanager
    def listed(self, caller: Caller, kind: str, text: str, timeout_s: float) -> Iterator[RunningQuery]:
        query = RunningQuery(uuid.uuid4().hex, caller, kind, text, timeout_s)
        with self._lock:
            self._queries[query.query_id] = query
        outcome = "ok"
        try:
            yield query
        except LakeError as error:
            outcome = error.code
            raise
        finally:
            with self._lock:
                del self._queries[query.query_id]
            _seconds(kind, outcome).observe(query.elapsed_s)

    @property
    def idle(self) -> bool:
        return not self._queries

    def visible_to(self, caller: Caller) -> list[RunningQuery]:
        with self._lock:
            queries = list(self._queries.values())
        return [query for query in queries if caller.sees(query.caller.org_id)]

    def cancel(self, caller: Caller, query_id: str) -> RunningQuery:
        """Cancel a query. A query of another org raises the same error as one that does not exist."""
        for query in self.visible_to(caller):
            if query.query_id == query_id:
                query.cancel(f"it was cancelled by {caller.name!r}")
                return query
        raise Missing(f"cannot find a running query {query_id!r}", hint="see GET /api/v1/queries")

    def cancel_all(self, reason: str) -> None:
        with self._lock:
            queries = list(self._queries.values())
        for query in queries:
            query.cancel(reason)
