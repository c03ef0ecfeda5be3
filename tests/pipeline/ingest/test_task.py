"""One task over files that were dropped into a folder."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.parquet as pq

from lakerunner.formats.options import options_of
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import RawObject
from lakerunner.pipeline.ingest.task import IngestTask, run_task
from lakerunner.runtime.settings import FormatsSettings
from lakerunner.store.bucket import version_of
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store


def test_text_and_mapped_prefixes_land_with_their_times(tmp_path: Path) -> None:
    config = StoreConfig(url=tmp_path.as_uri())
    store = open_store(config)
    files = {
        "logs-raw/app.log": b"2026-11-16 05:00:00,123 - shop - ERROR - a, b\nTraceback (most\n  File\nKeyError: 1\n",
        "logs-raw/words": b"no time in here\n",
        "logs-raw/legacy/x.json": b'{"when":"2026-11-16T05:00:01Z","what":"mapped","time":"2026-11-16T05:00:09Z"}\n',
    }
    raws = []
    for key, body in files.items():
        meta = store.put(key, body)
        raws.append(RawObject(fresh_id(), "edge", "logs", config.url, key, version_of(meta), meta.size_bytes))
    options = options_of(FormatsSettings(mapping="logs-raw/legacy/ time=when message=what"))
    before_s = time.time()
    result = run_task(
        IngestTask(fresh_id(), fresh_id(), "edge", "logs", tuple(raws), {config.url: config}, config, options=options)
    )
    assert result.error is None
    rows = [row for path in tmp_path.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert {row["message"]: row["timestamp"].isoformat() for row in rows if row["message"] != "no time in here"} == {
        "a, b\nTraceback (most\n  File\nKeyError: 1": "2026-11-16T05:00:00.123000+00:00",
        "mapped": "2026-11-16T05:00:01+00:00",
    }
    (own,) = [row["timestamp"] for row in rows if row["message"] == "no time in here"]
    assert abs(own.timestamp() - before_s) < 3_600
    assert len(rows) == sum(outcome.row_count for outcome in result.objects) == 3
