"""Reading the lake when parts of it are missing, damaged, down, or not ours."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pytest

from lakerunner.index.database import Database
from lakerunner.index.ledger import record_seen
from lakerunner.index.lookup import Want
from lakerunner.model.errors import Unavailable
from lakerunner.model.labels import LabelSet
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_S, TimeRange
from lakerunner.query.limits import QueryLimits
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult
from lakerunner.store import keys
from tests.components.postgres import PostgresServer
from tests.query.bit_rot import rotten
from tests.query.engine import Engine
from tests.query.lake_of_series import LakeOfSeries, lake_of_series

HOUR_MS = 3_600_000
M = [Matcher("__name__", MatchKind.EQUAL, "m")]


def _write(lake: LakeOfSeries) -> uuid.UUID:
    """Four segments of an hour of `m`; the last one holds `other` as well."""
    loaded = MemorySource()
    loaded.add(LabelSet.of({"__name__": "m", "a": "b"}), np.arange(0, 4 * HOUR_MS, 60_000), np.arange(240.0))
    loaded.add(LabelSet.of({"__name__": "other"}), [4 * HOUR_MS - 1], [1.0])
    return lake.write(loaded)


def _segments(lake: LakeOfSeries, org: uuid.UUID) -> list[Segment]:
    return list(lake.lake._catalog.lookup(org, [Want("metrics", TimeRange(0, 1 << 60))]).segments)


def test_a_query_over_segments(lake: LakeOfSeries) -> None:
    source = lake.lake.query(_write(lake))
    plan = Engine(source).compile("sum(rate(m[5m])) + m offset 1h", HOUR_MS, 3 * HOUR_MS, 60_000)
    source.prepare(plan.leaves)
    result = Engine(source).range("sum(rate(m[5m]))", HOUR_MS, 3 * HOUR_MS, 60_000)
    assert isinstance(result.value, MatrixResult)
    np.testing.assert_allclose(next(iter(result.value)).values, 1 / 60)
    stats = source.stats
    assert stats.index_lookups == 1, "one lookup serves the whole query"
    # Four segments, two of which both groups of steps need.
    assert (stats.segments_planned, stats.segments_read) == (6, 6)
    assert stats.complete and not stats.warnings()
    assert stats.watermark_ms is None, "no raw object is known"
    assert stats.rows >= 120


def test_the_watermark_is_what_the_ledger_says_and_not_the_end_of_the_segments(lake: LakeOfSeries) -> None:
    org = _write(lake)
    arrived_ms = 1_700_000_000_123
    waiting = RawObject(org, "edge", "metrics", "s3://raw", "a", "v", 10, arrived_ns=arrived_ms * 1_000_000)
    with lake.database.transaction() as tx:
        record_seen(tx, [waiting])
    source = lake.lake.query(org)
    source.select(M, 0, HOUR_MS)
    assert source.stats.watermark_ms == arrived_ms


def test_segments_are_passed_by_and_it_is_told(lake: LakeOfSeries) -> None:
    source = lake.lake.query(_write(lake))
    source.prepare([Leaf.of_samples((), 0, 10 * HOUR_MS)])
    other = [Matcher("__name__", MatchKind.EQUAL, "other")]
    source.select(other, 0, 10 * HOUR_MS)
    source.select(M, 0, HOUR_MS // 2)
    by_name, by_time = source.stats.explains
    assert [(step.rule, step.before, step.kept) for step in by_name.steps] == [
        ("by_tier", 4, 4),
        ("by_signal", 4, 4),
        ("by_time", 4, 4),
        ("by_metric_name", 4, 1),
        ("by_value", 1, 1),
    ]
    assert by_time.steps[2].kept == by_time.segments == 1
    assert source.stats.segments_pruned == {"by_metric_name": 3, "by_time": 3}
    assert by_name.to_json()["rules"][3]["prunedBytes"] > 0


def test_another_org_sees_nothing(lake: LakeOfSeries) -> None:
    _write(lake)
    assert not lake.lake.query(uuid.uuid4()).select(M, 0, 10 * HOUR_MS).labels


def test_a_segment_that_is_gone_is_missed_and_told(lake: LakeOfSeries) -> None:
    org = _write(lake)
    lost = _segments(lake, org)[1]
    lake.store.delete(keys.segment_keys(lost))
    source = lake.lake.query(org)
    batch = source.select(M, 0, 10 * HOUR_MS)
    assert 120 < len(batch.values) < 240
    assert list(source.stats.segments_failed) == [str(lost.segment_id)]
    assert not source.stats.complete
    assert "1 of 4 segments could not be read" in source.stats.warnings()[0]
    with pytest.raises(Unavailable, match="cannot answer whole"):
        lake.lake.query(org, QueryLimits(partial=False)).select(M, 0, 10 * HOUR_MS)


def test_bad_bytes_in_the_cache_are_fetched_again(lake: LakeOfSeries) -> None:
    org = _write(lake)
    whole = lake.lake.query(org).select(M, 0, 10 * HOUR_MS)
    damaged = 0
    for path in (lake.settings.data.dir / "cache" / "query-api").iterdir():
        # The same size, and other bytes from the first page on: only reading shows it.
        path.write_bytes(b"\xff" * path.stat().st_size)
        damaged += 1
    assert damaged >= 8
    source = lake.lake.query(org)
    again = source.select(M, 0, 10 * HOUR_MS)
    assert source.stats.complete
    np.testing.assert_array_equal(again.values, whole.values)


def test_a_flipped_bit_is_noticed_by_its_checksum(lake: LakeOfSeries) -> None:
    org = _write(lake)
    whole = lake.lake.query(org).select(M, 0, 10 * HOUR_MS)
    bad = _segments(lake, org)[2]
    key = keys.segment_keys(bad)[0]
    body = lake.store.get(key)
    flipped = rotten(body, "value")
    for path in (lake.settings.data.dir / "cache" / "query-api").iterdir():
        if path.read_bytes() == body:
            path.write_bytes(flipped)
    source = lake.lake.query(org)
    np.testing.assert_array_equal(source.select(M, 0, 10 * HOUR_MS).values, whole.values)
    assert source.stats.complete


def test_a_flipped_bit_in_the_bucket_is_a_failed_segment(lake: LakeOfSeries) -> None:
    org = _write(lake)
    bad = _segments(lake, org)[2]
    key = keys.segment_keys(bad)[0]
    lake.store.put(key, rotten(lake.store.get(key), "value"), create_only=False)
    source = lake.lake.query(org)
    # The samples at both of its ends are in its neighbours as well.
    assert len(source.select(M, 0, 10 * HOUR_MS).values) == 240 - (bad.row_count - 2)
    assert list(source.stats.segments_failed) == [str(bad.segment_id)]
    assert "CRC" in source.stats.segments_failed[str(bad.segment_id)]
    with pytest.raises(Unavailable, match="cannot answer whole"):
        lake.lake.query(org, QueryLimits(partial=False)).select(M, 0, 10 * HOUR_MS)


def test_bad_bytes_in_the_bucket_are_a_failed_segment(lake: LakeOfSeries) -> None:
    org = _write(lake)
    bad = _segments(lake, org)[2]
    key = keys.segment_keys(bad)[0]
    lake.store.put(key, b"PAR1 no more", create_only=False)
    source = lake.lake.query(org)
    assert len(source.select(M, 0, 10 * HOUR_MS).values) < 240
    assert list(source.stats.segments_failed) == [str(bad.segment_id)]


def test_queries_go_on_while_the_index_is_down(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.new_database()
    with lake_of_series(tmp_path, url) as lake:
        org = _write(lake)
        clock = [1_000.0]
        catalog = Catalog(lake.database, patience_s=60, clock=lambda: clock[0])
        want = Want("metrics", TimeRange(0, 4 * 3_600 * NS_PER_S))
        assert len(catalog.lookup(org, [want]).segments) == 4
        catalog._database = Database("postgresql://127.0.0.1:1/gone", connect_timeout_s=1.0)
        clock[0] += 10
        # Time has passed, and so has the end of what a dashboard asks for.
        later = Want("metrics", TimeRange(2 * 3_600 * NS_PER_S, (4 * 3_600 + 10) * NS_PER_S))
        looked = catalog.lookup(org, [later])
        assert (len(looked.segments), looked.age_s, looked.looked_up_in) == (2, 10, "memory")
        with pytest.raises(Unavailable):
            catalog.lookup(uuid.uuid4(), [want])
        with pytest.raises(Unavailable):
            catalog.lookup(org, [Want("metrics", TimeRange(0, 9 * 3_600 * NS_PER_S))])
        with pytest.raises(Unavailable):
            catalog.lookup(org, [Want("logs", TimeRange(0, 3_600 * NS_PER_S))])
        clock[0] += 51
        with pytest.raises(Unavailable):
            catalog.lookup(org, [want])
        catalog._database.close()
    postgres_server.drop_database(url)


def test_a_lookup_describes_only_segments_that_are_new(lake: LakeOfSeries, monkeypatch: pytest.MonkeyPatch) -> None:
    org = _write(lake)
    asked: list[int] = []
    from lakerunner.query.plan import catalog as module

    load_segments = module.load_segments
    monkeypatch.setattr(module, "load_segments", lambda tx, refs: (asked.append(len(refs)), load_segments(tx, refs))[1])
    want = Want("metrics", TimeRange(0, 1 << 60))
    for _ in range(3):
        assert len(lake.lake._catalog.lookup(org, [want, want]).segments) == 4
    assert asked == [4]


def test_times_apart_are_looked_up_apart(lake: LakeOfSeries) -> None:
    source = lake.lake.query(_write(lake))
    at_ms = 4 * HOUR_MS - 60_000
    source.prepare(Engine(source).compile("m - m offset 3h", at_ms, at_ms, 0).leaves)
    for start_ms in (4 * HOUR_MS - 300_000, HOUR_MS - 300_000):
        assert len(source.select(M, start_ms, start_ms + 200_000).values) == 4
    assert source.stats.index_lookups == 1
    # The second segment begins with the last sample of the first hour; the third is in neither time.
    assert [explain.considered for explain in source.stats.explains] == [3, 3]
