"""The default deployment end to end: objects written into the folder become rows, each exactly once."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from lakerunner.demo.produce import Sent, backfill
from lakerunner.index.database import Database
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.index.status import index_status
from lakerunner.model.time import NS_PER_S
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from tests.ops.serve_process import ServeProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

START_NS = 1_767_225_600 * NS_PER_S


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[ServeProcess]:
    serve = ServeProcess(tmp_path / "data", module="lakerunner")
    yield serve
    serve.close()


def test_what_was_sent_is_what_is_stored_and_can_be_opened_without_us(serve: ServeProcess) -> None:
    serve.start().await_all_ready(120)
    store = open_store(StoreConfig.of(Settings(data=DataSettings(dir=serve.data_dir))))
    sent: list[Sent] = []
    backfill(store, START_NS, START_NS + 60 * NS_PER_S, 50.0, progress=sent.append)
    store.put("otel-raw/broken/logs_1.binpb.gz", b"\x1f\x8b\x08 this is not what it says")
    database = serve.database()
    try:
        _await_ended(database, len(sent) + 1)
        assert (index_status(database).objects or {})["quarantined"] == 1
    finally:
        database.close()
    expected: Counter[str] = Counter()
    for each in sent:
        expected[each.signal] += each.records
    bucket = serve.data_dir / "bucket" / "db" / str(DEFAULT_ORG_ID)
    for signal in ("logs", "traces"):
        files = [str(path) for path in bucket.glob(f"*/*/{signal}/*/tbl_*.parquet")]
        (rows,) = duckdb.connect().sql(f"SELECT count(*) FROM read_parquet({files}, union_by_name = true)").fetchall()
        assert rows == (expected[signal],)
    assert serve.terminate() == 0


def _await_ended(database: Database, count: int, timeout_s: float = 180.0) -> None:
    end = time.monotonic() + timeout_s
    while True:
        objects = index_status(database).objects or {}
        if objects["done"] + objects["quarantined"] == count:
            return
        assert time.monotonic() < end, f"of {count}: {objects}"
        time.sleep(0.5)
