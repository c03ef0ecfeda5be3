"""Writes the query log: what was asked is added up in memory, and stored now and then by a thread of its own.

A query never waits for its log, and never fails because of it. Texts that look like they hold a secret are masked.
"""

from __future__ import annotations

import re
import threading
import uuid

from lakerunner.index.database import Database
from lakerunner.index.query_log import LoggedQuery, add_queries
from lakerunner.model.errors import LakeError
from lakerunner.query.language import Plan, StepPlan
from lakerunner.query.rewriting import Ruled
from lakerunner.query.stats import QueryStats
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.telemetry import log
from lakerunner.serve.caller import Caller

#: Different queries that are held between two writes; further ones are not logged.
_MAX_HELD = 1_000
#: A longer query is not logged.
_MAX_TEXT = 10_000
MASK = "***"
#: Values after words that announce a secret, and texts that have the form of one.
_SECRETS = re.compile(
    r"(?i)(?<=bearer\s)[^\s\"'`]+|(?<=basic\s)[A-Za-z0-9+/=]{8,}"
    r"|(?:(?<=password[=:])|(?<=passwd[=:])|(?<=secret[=:])|(?<=token[=:])|(?<=api_key[=:])|(?<=apikey[=:]))[^\s\"'`&,;]+"
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]+)?|\bAKIA[0-9A-Z]{12,}|\bgh[pousr]_\w{20,}|\blr_\w{16,}"
    r"|-----BEGIN [A-Z ]*KEY-----[^\"'`]*"
)


def masked(text: str) -> str:
    """
    >>> masked('{app="a"} |= "Authorization: Bearer abc.def"'), masked('{app="a"} |= "token=123 x"')
    ('{app="a"} |= "Authorization: Bearer ***"', '{app="a"} |= "token=*** x"')
    """
    return _SECRETS.sub(MASK, text)


class QueryLog:
    """Thread-safe. With `interval_s` 0 nothing is logged."""

    def __init__(self, database: Database, max_queries: int, interval_s: float = 10.0) -> None:
        self._database = database
        self._max_queries = max_queries
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._held: dict[tuple[uuid.UUID, str, str, int, int], LoggedQuery] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def record(
        self, caller: Caller, plan: Plan, stats: QueryStats, cpu_s: float, elapsed_s: float, *, cached: bool
    ) -> None:
        """Add one answer."""
        raw = plan.raw if isinstance(plan, Ruled) else plan
        if not self._interval_s or not isinstance(raw, StepPlan) or len(raw.canonical) > _MAX_TEXT:
            return
        times = raw.times
        key = (caller.org_id, raw.language, raw.canonical, times.range_ms, times.step_ms)
        with self._lock:
            entry = self._held.get(key)
            if entry is None:
                if len(self._held) >= _MAX_HELD:
                    SWALLOWED.labels("query_log").inc()
                    return
                entry = self._held[key] = LoggedQuery(
                    caller.org_id, raw.language, masked(raw.canonical), times.range_ms, times.step_ms
                )
            entry.asked_by = caller.name
            entry.asked += 1
            entry.elapsed_s += elapsed_s
            if cached:
                entry.cached += 1
            else:
                entry.rewritten += isinstance(plan, Ruled)
                entry.rows_read += stats.rows
                entry.bytes_read += stats.read_bytes
                entry.cpu_s += cpu_s
            if self._thread is None:
                # Not before the first query: processes are forked after the service was made.
                self._thread = threading.Thread(target=self._run, name="query-log", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        with self._lock:
            held, self._held = list(self._held.values()), {}
        if not held:
            return
        try:
            with self._database.transaction() as tx:
                left_out = add_queries(tx, held, self._max_queries)
        except LakeError as error:
            SWALLOWED.labels("query_log").inc()
            log().warning("queries not logged", queries=len(held), error=str(error))
            return
        if left_out:
            SWALLOWED.labels("query_log").inc(left_out)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
            self.flush()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.flush()
