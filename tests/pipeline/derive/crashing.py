"""Ingest with derivation of the items that are open, done in a process of its own, for tests that kill it."""

from __future__ import annotations

import sys
from pathlib import Path

from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Database
from lakerunner.model.errors import Unavailable
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.pipeline.items import load_items
from lakerunner.runtime.settings import DeriveSettings, Settings
from tests.pipeline.lake import settings_of

#: An item that another one raced is done again; in one process the second try succeeds.
_TRIES = 10


def deriving(settings: Settings) -> Settings:
    return settings.model_copy(update={"derive": DeriveSettings(span_metrics=True, service_graph=True)})


def work_off(settings: Settings, database: Database) -> None:
    """Do and commit every open item of ingest."""
    runner = IngestRunner(deriving(settings), database, lambda tasks: [run_task(task) for task in tasks])
    for _ in range(_TRIES):
        with database.transaction() as tx:
            rows = tx.execute("SELECT item_id FROM work_item WHERE state = 'open' ORDER BY item_id").fetchall()
            items, _ = load_items(tx, INGEST, [row["item_id"] for row in rows], settings.pipeline)
        if not items:
            return
        for attempt in runner.run(list(items.values()), dict.fromkeys(items, 1)):
            assert isinstance(attempt.result, ItemResult), attempt.result
            try:
                commit_item(database, attempt.result)
            except Unavailable:
                continue
    raise AssertionError("items stay open")


if __name__ == "__main__":
    url, folder = sys.argv[1:3]
    opened = Database(url)
    work_off(settings_of(url, Path(folder)), opened)
    opened.close()
