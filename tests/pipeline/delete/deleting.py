"""Deletions on a lake of a test, done in this process and without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.deletions import Deletion, find_deletion
from lakerunner.index.overdue import START, Overdue, pending_deletions
from lakerunner.model.errors import LakeError
from lakerunner.pipeline.delete.request import begin_due, request_deletion
from lakerunner.pipeline.delete.stage import DELETE, DeleteRunner, RunTasks
from lakerunner.pipeline.delete.task import RewriteResult, RewriteTask, run_task
from lakerunner.pipeline.items import load_items, make_item
from lakerunner.query.deletable import deletion_request
from lakerunner.runtime.settings import Settings

SIGNALS = ["logs", "metrics", "traces"]


def request(
    database: Database, org_id: uuid.UUID, signal: str, selector: str, start_ns: int, end_ns: int, wait_s: float = 0.0
) -> uuid.UUID:
    wanted, may_hold = deletion_request(database, org_id, signal, selector, start_ns, end_ns, "a test")
    with database.transaction() as tx:
        return request_deletion(tx, wanted, wait_s, may_hold)


def found(database: Database, org_id: uuid.UUID, deletion_id: uuid.UUID) -> Deletion:
    with database.transaction() as tx:
        return find_deletion(tx, org_id, deletion_id)


def _here(tasks: Sequence[RewriteTask]) -> list[RewriteResult]:
    return [run_task(task) for task in tasks]


def results(settings: Settings, database: Database, run_tasks: RunTasks = _here) -> list[ItemResult]:
    """What an attempt at everything that is due makes, not yet committed."""
    with database.transaction() as tx:
        page = pending_deletions(tx, DELETE.name, SIGNALS, Overdue(1e-6, float("inf")), START)
    by_group: dict[tuple[uuid.UUID, str], list[object]] = {}
    for segment in {each.segment_id: each for each in page.found}.values():
        by_group.setdefault((segment.org_id, segment.signal), []).append(segment)
    made = [make_item(database, DELETE, segments) for segments in by_group.values()]  # type: ignore[arg-type]
    ids = [item_id for item_id in made if item_id is not None]
    with database.transaction() as tx:
        # What a killed worker left open.
        rows = tx.execute("SELECT item_id FROM work_item WHERE stage = 'delete' AND state = 'open'").fetchall()
        ids = sorted({*ids, *(row["item_id"] for row in rows)})
        items, _ = load_items(tx, DELETE, ids, settings.pipeline)
    runner = DeleteRunner(settings, database, run_tasks)
    attempts = list(runner.run(list(items.values()), dict.fromkeys(items, 1))) if items else []
    done = []
    for attempt in attempts:
        assert not isinstance(attempt.result, LakeError), attempt.result
        done.append(attempt.result)
    return done


def work_off(settings: Settings, database: Database, run_tasks: RunTasks = _here) -> list[Outcome]:
    """Do all deletions whose wait is over."""
    begin_due(database)
    return [commit_item(database, result) for result in results(settings, database, run_tasks)]
