"""Write the spans as segments of a folder lake, and make them visible in its index."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.traces.spans import spans

from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signals.traces import TRACES
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of


def load(database: Database, folder: Path, count: int) -> None:
    for segment in _written(folder, count):
        item_id = uuid.uuid4()
        with database.transaction() as tx:
            create_item(tx, WorkItem(item_id, "ingest", DEFAULT_ORG_ID, TRACES.name))
        assert commit_item(database, ItemResult(item_id, made=[segment])) is Outcome.COMMITTED
    with database.transaction() as tx:
        tx.execute("ANALYZE segment")


def config_of(folder: Path) -> StoreConfig:
    return StoreConfig.of(Settings(data=DataSettings(dir=folder)))


def _written(folder: Path, count: int) -> Iterator[Segment]:
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(_write, [folder] * count, range(count))


def _write(folder: Path, number: int) -> Segment:
    table = spans(number)
    (body,) = encode_tables(TRACES, {"": table})
    segment = segment_of(TRACES, describe(TRACES, table), segment_id=fresh_id(), org_id=DEFAULT_ORG_ID,
                         collector="bench", size_bytes=body.size)  # fmt: skip
    open_store(config_of(folder)).put(keys.segment_keys(segment)[0], memoryview(body))
    return segment
