"""Small segments are decoded in one thread, and fetched ahead where the store is another machine."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

from lakerunner.index.database import Database
from lakerunner.model.errors import Unavailable
from lakerunner.model.labels import LabelSet
from lakerunner.query.fanout import local_workers
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult
from tests.query.engine import Engine
from tests.query.lake_of_series import LakeOfSeries

HOUR_MS = 3_600_000
SEGMENTS = 5


@pytest.fixture
def lake(tmp_path: Path, database: Database):
    opened = LakeOfSeries(tmp_path, database.url)
    yield opened
    opened.close()


def _written(lake: LakeOfSeries) -> uuid.UUID:
    loaded = MemorySource()
    times = np.arange(0, SEGMENTS * HOUR_MS, 60_000)
    loaded.add(LabelSet.of({"__name__": "m"}), times, np.arange(float(len(times))))
    return lake.write(loaded)


def _asked(lake: LakeOfSeries, org: uuid.UUID):
    source = lake.lake.query(org)
    result = Engine(source).range("sum_over_time(m[5h])", SEGMENTS * HOUR_MS - 1, SEGMENTS * HOUR_MS - 1, 60_000)
    assert isinstance(result.value, MatrixResult)
    return source.stats, [float(each) for series in result.value for each in series.values]


@pytest.mark.parametrize("remote", [False, True])
def test_small_segments(lake: LakeOfSeries, monkeypatch: pytest.MonkeyPatch, remote: bool) -> None:
    monkeypatch.setattr(ObjectCache, "is_remote", remote)
    scanned, fetched = set(), set()
    scan, fetch = local_workers.scan_samples, ObjectCache._fetch

    def noted_scan(*given: object):
        scanned.add(threading.get_ident())
        return scan(*given)

    def noted_fetch(*given: object):
        fetched.add(threading.get_ident())
        return fetch(*given)

    monkeypatch.setattr(local_workers, "scan_samples", noted_scan)
    monkeypatch.setattr(ObjectCache, "_fetch", noted_fetch)
    org = _written(lake)
    stats, values = _asked(lake, org)
    count = SEGMENTS * 60
    assert values == [count * (count - 1) / 2]
    assert (stats.segments_read, stats.cache_misses, stats.cache_hits) == (SEGMENTS, 2 * SEGMENTS, 0)
    assert len(scanned) == 1
    assert (fetched == scanned) is not remote
    stats, again = _asked(lake, org)
    assert again == values and (stats.cache_misses, stats.cache_hits) == (0, 2 * SEGMENTS)


def test_a_segment_that_cannot_be_fetched_ahead_is_missing(lake: LakeOfSeries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectCache, "is_remote", True)
    org = _written(lake)
    fetch = ObjectCache._fetch
    gone: set[str] = set()

    def flaky(cache: ObjectCache, key: str, name: str):
        if key.endswith(tuple(gone)):
            raise Unavailable("cannot fetch")
        return fetch(cache, key, name)

    monkeypatch.setattr(ObjectCache, "_fetch", flaky)
    with lake.database.transaction() as tx:
        row = tx.execute("SELECT segment_id FROM segment WHERE org_id = %s LIMIT 1", [org]).fetchone()
    assert row is not None
    gone.add(f"{row['segment_id']}.parquet")
    stats, _ = _asked(lake, org)
    assert len(stats.segments_failed) == 1 and not stats.complete
