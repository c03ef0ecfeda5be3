"""Requests to buckets by org: every process adds what it counted now and then, so that totals outlive processes.

What a killed process counted in its last seconds is not in them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from lakerunner.index.database import Connection, Database
from lakerunner.model.errors import LakeError
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.store.requests import Requests, add_requests, take_requests

#: How often a process adds its counts.
_EVERY_S = 10.0
#: How long the end of a process waits for its last counts.
_LAST_S = 2.0


def add_counts(tx: Connection, counts: Sequence[Requests]) -> None:
    """Add counts to the totals, in order: two processes that do this wait for each other and do not deadlock."""
    columns = [list(column) for column in zip(*sorted(counts), strict=True)]
    tx.execute(
        "INSERT INTO org_request AS t (org_id, operation, requests, bytes)"
        " SELECT * FROM unnest(%s::uuid[], %s::text[], %s::bigint[], %s::bigint[])"
        " ON CONFLICT (org_id, operation) DO UPDATE SET requests = t.requests + excluded.requests,"
        " bytes = t.bytes + excluded.bytes",
        columns,
    )


def store_counts(database: Database) -> bool:
    """Add what this process counted since the last time; return whether there was something."""
    counts = take_requests()
    if not counts:
        return False
    try:
        with database.transaction() as tx:
            add_counts(tx, counts)
    except LakeError:
        add_requests(counts)
        raise
    return True


class RequestLedger:
    """Adds the counts of this process in the background."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)

    def start(self) -> None:
        if not self._thread.is_alive() and not self._ended.is_set():
            self._thread.start()

    def end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._ended.wait(_EVERY_S)
            try:
                store_counts(self._database)
            except LakeError:
                # They are added the next time.
                SWALLOWED.labels("org_requests").inc()
