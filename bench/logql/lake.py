"""Load Lakerunner: raw objects in a folder bucket, turned into segments by ingest's own task."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable
from pathlib import Path

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.raw_object import CONTENT_VERSION, RawObject, content_hash
from lakerunner.model.signals.logs import LOGS
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

#: Objects of one work item: what a boxer gathers of a busy collector.
_OBJECTS_PER_ITEM = 25


def load(database: Database, folder: Path, bodies: Iterable[bytes]) -> int:
    """Ingest the export requests, make them visible, and return the number of rows."""
    config = StoreConfig.of(Settings(data=DataSettings(dir=folder)))
    store = open_store(config)
    rows = 0
    waiting = iter(enumerate(bodies))
    while some := list(itertools.islice(waiting, _OBJECTS_PER_ITEM)):
        raws = []
        for number, body in some:
            key = f"otel-raw/default/bench/logs_{number:04}.binpb"
            store.put(key, body)
            version = CONTENT_VERSION + content_hash(body).hexdigest()
            raws.append(RawObject(DEFAULT_ORG_ID, "bench", LOGS.name, config.url, key, version, len(body)))
        item_id = uuid.uuid4()
        sources = {config.url: config}
        made = run_task(IngestTask(item_id, DEFAULT_ORG_ID, "bench", LOGS.name, tuple(raws), sources, config))
        if made.error is not None:
            raise made.error
        with database.transaction() as tx:
            create_item(tx, WorkItem(item_id, "ingest", DEFAULT_ORG_ID, LOGS.name))
        assert commit_item(database, ItemResult(item_id, made=list(made.segments))) is Outcome.COMMITTED
        rows += sum(segment.row_count for segment in made.segments)
    with database.transaction() as tx:
        tx.execute("ANALYZE segment")
    return rows
