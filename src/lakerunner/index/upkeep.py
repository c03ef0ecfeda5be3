"""Upkeep of the index: delete expired rows, fold the counts, and create the partitions that will be needed soon.

Everything is done in small batches, each its own transaction: no statement grows with the table, and no lock is held
long. Rows that wait or are in work are never deleted, because reconciliation recovers from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lakerunner.index import (
    call_halves,
    derivation,
    derived_windows,
    ledger,
    objectives,
    outbox,
    query_log,
    rule_series,
    tally,
    work,
)
from lakerunner.index.database import Connection, Database
from lakerunner.index.leases import Lease, require_held
from lakerunner.index.ledger import ObjectState
from lakerunner.index.segments import ensure_partitions
from lakerunner.model.errors import Conflict, LakeError
from lakerunner.model.time import NS_PER_DAY, dateint
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.settings import DeriveSettings, UpkeepSettings
from lakerunner.runtime.telemetry import log

#: Partitions are created this far ahead, so that no ingest has to create one when a month begins.
_DAYS_AHEAD = 7
#: Rows per transaction: tens of milliseconds.
BATCH = 2_000
#: How long the series of a rule and day are remembered after the last was added.
_SERIES_KEEP_S = 7 * 86_400.0
#: A job stops after this long and goes on in the next round, so that the others have their turn.
_JOB_S = 20.0

#: Deletes up to this many expired rows and returns how many; fewer when no more are expired.
Job = Callable[[Connection, int], int]


def derivation_jobs(settings: DeriveSettings) -> dict[str, Job]:
    """The tables of derived metrics."""
    return {
        "service_graph_half": lambda tx, limit: call_halves.forget_halves(tx, settings.pair_wait_s, limit),
        "derived_slot": lambda tx, limit: derivation.forget_slots(tx, settings.slot_keep_s, limit),
        "rule_series": lambda tx, limit: rule_series.forget_series(tx, _SERIES_KEEP_S, limit),
    }


def index_jobs(settings: UpkeepSettings) -> dict[str, Job]:
    """Table -> the job that keeps it small."""
    return {
        "tally_delta": tally.fold,
        "objective_minute": objectives.forget_minutes,
        "query_log": lambda tx, limit: query_log.forget_queries(tx, settings.query_log_keep_s, limit),
        "outbox": lambda tx, limit: outbox.forget_published(tx, settings.outbox_keep_s, limit),
        "deletion": lambda tx, limit: derived_windows.forget_replaced(tx, settings.work_keep_s, limit),
        "work_item": lambda tx, limit: work.forget_ended(tx, settings.work_keep_s, limit),
        "raw_object": lambda tx, limit: ledger.forget_ended(tx, ObjectState.DONE, settings.raw_object_keep_s, limit),
        "quarantine": lambda tx, limit: ledger.forget_ended(
            tx, ObjectState.QUARANTINED, settings.quarantine_keep_s, limit
        ),
    }


def create_partitions(database: Database) -> None:
    now_ns = time.time_ns()
    ensure_partitions(database, (dateint(now_ns), dateint(now_ns + _DAYS_AHEAD * NS_PER_DAY)))


def run_jobs(database: Database, jobs: Mapping[str, Job], lease: Lease, batch: int = BATCH) -> dict[str, int]:
    """Run each job as the holder of the lease until it finds no more; return the number of rows by job.

    A job that fails is logged and counted, and does not keep the others from running. What waiting solves is raised,
    and so is the loss of the lease.
    """
    handled: dict[str, int] = {}
    for name, job in jobs.items():
        handled[name] = 0
        end_s = time.monotonic() + _JOB_S
        try:
            more = True
            while more and time.monotonic() < end_s:
                with database.transaction() as tx:
                    require_held(tx, lease)
                    rows = job(tx, batch)
                handled[name] += rows
                more = rows >= batch
        except LakeError as error:
            if error.retryable or isinstance(error, Conflict):
                raise
            SWALLOWED.labels("upkeep").inc()
            log().warning("upkeep job failed", job=name, error=str(error))
    return handled
