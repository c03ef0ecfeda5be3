"""Tiers of a real lake: chosen by the windows in the index, pushed down to workers, explained, and switched off."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.errors import LimitHit
from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import LabelSet
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES
from lakerunner.model.signals.tiers import TIER_METRICS
from lakerunner.model.time import NS_PER_MS
from lakerunner.pipeline.rollup.roll_up import roll_up
from lakerunner.query import metadata
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.limits import QueryLimits, Size
from lakerunner.query.plan.planner import Planner
from lakerunner.query.promql.language import LANGUAGE
from lakerunner.query.run import run
from lakerunner.query.scan.samples import merge, opened
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult, QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.query.worker.server import WorkerServer
from lakerunner.store import keys
from lakerunner.store.segment_writer import describe, encode_tables, segment_of
from tests.query.lake_of_series import LakeOfSeries, samples_table, series_table

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
START_MS = 20_000 * DAY_MS
TIMES = QueryTimes(START_MS + HOUR_MS, START_MS + 72 * HOUR_MS, HOUR_MS)
TOKEN = "a shared secret"


def _loaded() -> MemorySource:
    rng = np.random.default_rng(7)
    loaded = MemorySource()
    times = START_MS + np.arange(1, 72 * 120 + 1) * 30_000
    for number in range(4):
        labels = {"job": f"j{number % 2}", "n": str(number)}
        values = np.cumsum(rng.integers(0, 9, len(times))).astype(float)
        values[5_000:] -= values[5_000]
        loaded.add(LabelSet.of({"__name__": "m_total", **labels}), times, values)
        counts = np.cumsum(rng.integers(0, 5, (3, 72 * 12)), axis=1)
        hists = [
            Histogram(
                schema=CUSTOM_SCHEMA, count=float(one.sum()), sum=float(one.sum()), bounds=np.array([1.0, 2.0]),
                pos_index=np.arange(3), pos_count=one.astype(float),
            )
            for one in counts.T
        ]  # fmt: skip
        loaded.add(LabelSet.of({"__name__": "h", **labels}), times[9::10], np.zeros(len(hists)), histograms=hists)
    return loaded


def _put_tier(lake: LakeOfSeries, org: uuid.UUID, loaded: MemorySource, tier_s: int, window_ms: int) -> None:
    """The tier's segments, one per window, and their windows, all clean."""
    series = list(loaded._series.values())
    table, described = roll_up(samples_table(series), tier_s), series_table(series, "cumulative")
    at = table.column("timestamp").cast(pa.int64()).to_numpy()
    segments = []
    starts = range((START_MS // window_ms) * window_ms, int(at.max()), window_ms)
    for start_ms in starts:
        rows = table.filter(pa.array((at > start_ms) & (at <= start_ms + window_ms)))
        tables = {SAMPLES.suffix: rows, SERIES.suffix: described}
        files = encode_tables(TIER_METRICS, tables)
        statistics = describe(METRICS, rows)
        segment = segment_of(
            METRICS, statistics, segment_id=fresh_id(), org_id=org, collector="rollup", tier_s=tier_s,
            size_bytes=sum(file.size for file in files),
        )  # fmt: skip
        for key, file in zip(keys.segment_keys(segment), files, strict=True):
            lake.store.put(key, memoryview(file))
        segments.append(segment)
    lake.commit(org, segments)
    with lake.database.transaction() as tx:
        for start_ms in starts:
            tx.execute(
                "INSERT INTO rollup_window (org_id, tier_s, start_ns, end_ns, made_generation, dirty)"
                " VALUES (%s, %s, %s, %s, 1, false) ON CONFLICT (org_id, tier_s, start_ns)"
                " DO UPDATE SET dirty = false, made_generation = rollup_window.generation",
                [org, tier_s, start_ms * NS_PER_MS, (start_ms + window_ms) * NS_PER_MS],
            )


@pytest.fixture(scope="module")
def org(lake: LakeOfSeries) -> uuid.UUID:
    loaded = _loaded()
    org = lake.write(loaded, temporality="cumulative")
    _put_tier(lake, org, loaded, 300, HOUR_MS)
    _put_tier(lake, org, loaded, 3_600, DAY_MS)
    return org


@pytest.fixture(scope="module")
def worker(lake: LakeOfSeries) -> Iterator[FlightWorkers]:
    local = local_workers(lake.settings, "tiers-test")
    server = WorkerServer("grpc://127.0.0.1:0", local, TOKEN, 8, 1 << 30)
    flight = FlightWorkers(lambda: [f"127.0.0.1:{server.port}"], TOKEN, last_resort=local)
    yield flight
    flight.close()
    server.shutdown()
    local.close()


def _ask(source: LakeQuery, text: str, times: QueryTimes = TIMES, **options: Any) -> QueryResult:
    plan = LANGUAGE.compile(text, times, EngineOptions(**options))
    source.prepare(plan.leaves)
    return run(plan, source, lambda: None)


def _values(result: QueryResult) -> dict[str, tuple[list[int], list[float]]]:
    assert isinstance(result.value, MatrixResult)
    return {str(one.labels): (one.timestamps_ms.tolist(), one.values.tolist()) for one in result.value.series}


def _state(lake: LakeOfSeries, org: uuid.UUID, tier_s: int, day: int, change: str) -> None:
    with lake.database.transaction() as tx:
        tx.execute(
            f"UPDATE rollup_window SET {change} WHERE org_id = %s AND tier_s = %s AND start_ns >= %s AND start_ns < %s",
            [org, tier_s, (START_MS + day * DAY_MS) * NS_PER_MS, (START_MS + (day + 1) * DAY_MS) * NS_PER_MS],
        )


EXPRESSIONS = [
    "m_total",
    "sum by (job) (rate(m_total[1h]))",
    "increase(m_total[2h] offset 1h)",
    "max_over_time(m_total[1h]) - min_over_time(m_total[1h])",
    "avg_over_time(m_total[3h])",
    "count_over_time(h[1h])",
    "histogram_quantile(0.9, sum by (job) (rate(h[1h])))",
    "histogram_quantile(0.9, sum by (le) (rate(h_bucket[1h])))",
    "rate(h_count[1h])",
    "sum_over_time(h_bucket[1h])",
    "histogram_sum(sum_over_time(h[1h]))",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_tiers_answer_as_raw_here_and_on_workers(
    lake: LakeOfSeries, org: uuid.UUID, worker: FlightWorkers, text: str
) -> None:
    raw = lake.lake.query(org, size=Size.SMALL)
    expected = _values(_ask(raw, text, max_tier_s=0))
    assert expected
    assert raw.stats.to_json()["tiersSeconds"] == [0]
    here = lake.lake.query(org, size=Size.SMALL)
    assert _values(_ask(here, text)) == expected
    there = LakeQuery(org, Planner(lake.lake._catalog, org), worker)
    assert _values(_ask(there, text)) == expected
    if "sum_over_time(h" in text:
        # A tier has no sums of histograms, nor of the classic series that are made of them.
        assert 0 in here.stats.explains[-1].tiers_s
    else:
        assert here.stats.to_json()["tiersSeconds"] == there.stats.to_json()["tiersSeconds"] == [3_600]
        assert there.stats.pushed
        assert here.stats.rows < raw.stats.rows / 5


@pytest.mark.parametrize("text", [EXPRESSIONS[number] for number in (0, 1, 4, 6, 9)])
def test_joined_segments_of_a_tier_answer_as_raw_at_any_time(
    lake: LakeOfSeries, org: uuid.UUID, worker: FlightWorkers, text: str
) -> None:
    """The second and third time, the samples of 72 segments come from memory as one, and parts of them are asked."""
    steps = 3_600_000
    for _ in range(3):
        for first, last in ((1, 72), (5, 70), (30, 41)):
            times = QueryTimes(START_MS + first * HOUR_MS, START_MS + last * HOUR_MS - 600_000, steps)
            expected = _values(_ask(lake.lake.query(org, size=Size.SMALL), text, times, max_tier_s=0))
            here, there = lake.lake.query(org), LakeQuery(org, Planner(lake.lake._catalog, org), worker)
            assert _values(_ask(here, text, times, max_tier_s=300)) == expected
            assert _values(_ask(there, text, times, max_tier_s=300)) == expected
            assert here.stats.segments_read == there.stats.segments_read == here.stats.segments_planned
            if "sum_over_time(h" not in text:
                assert here.stats.rows == there.stats.rows


@pytest.mark.parametrize(
    "text", ["sum by (job) (rate(m_total[10m]))", "max_over_time(m_total[20m])", "rate(h_count[10m])"]
)
def test_segments_of_tiers_and_raw_ones_are_merged_once(
    lake: LakeOfSeries, org: uuid.UUID, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third time, nothing is merged again, although a day is read raw and the query has moved by a step."""
    every = [
        QueryTimes(START_MS + HOUR_MS + by_ms, START_MS + 70 * HOUR_MS + by_ms, 600_000)
        for by_ms in (1_200_000, 1_800_000)
    ]
    expected = [_values(_ask(lake.lake.query(org, size=Size.SMALL), text, times, max_tier_s=0)) for times in every]
    calls: list[int] = []
    gathered = merge._gathered

    def noted(*given: Any, **named: Any) -> Any:
        calls.append(len(given[0]))
        return gathered(*given, **named)

    monkeypatch.setattr(merge, "_gathered", noted)
    _state(lake, org, 300, 1, "dirty = true, generation = generation + 1")
    try:
        for turn in range(3):
            for times, wanted in zip(every, expected, strict=True):
                calls.clear()
                source = lake.lake.query(org, size=Size.SMALL)
                assert _values(_ask(source, text, times)) == wanted
                assert source.stats.to_json()["tiersSeconds"] == [0, 300]
                assert source.stats.segments_read == source.stats.segments_planned
                assert bool(calls) is (turn == 0)
    finally:
        _state(lake, org, 300, 1, "dirty = false, made_generation = generation")


def test_the_rows_of_a_tier_are_decoded_once_for_all_its_series(
    lake: LakeOfSeries, org: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read_row_group = opened.pq.ParquetFile.read_row_group

    def noted(file: Any, number: int, **options: Any) -> Any:
        reads.append(number)
        return read_row_group(file, number, **options)

    monkeypatch.setattr(opened.pq.ParquetFile, "read_row_group", noted)
    local = local_workers(lake.settings, f"fresh-{uuid.uuid4().hex}")
    source = LakeQuery(org, Planner(lake.lake._catalog, org), local)
    answer = _ask(source, 'sum(sum_over_time(m_total{n="1"}[1h])) / sum(sum_over_time(m_total[1h]))')
    local.close()
    assert len(_values(answer)) == 1
    assert source.stats.to_json()["tiersSeconds"] == [3_600]
    assert len(reads) == source.stats.segments_planned / 2 == 3


@pytest.mark.parametrize("selector", ["m_total", "h_bucket"])
def test_quantiles_are_approximated_only_if_asked(
    lake: LakeOfSeries, org: uuid.UUID, worker: FlightWorkers, selector: str
) -> None:
    text = f"quantile_over_time(0.9, {selector}[3h])"
    raw = _values(_ask(lake.lake.query(org, size=Size.SMALL), text))
    for source in (lake.lake.query(org), LakeQuery(org, Planner(lake.lake._catalog, org), worker)):
        answer = _ask(source, text, approximate=True, max_tier_s=300)
        found = _values(answer)
        assert list(found) == list(raw)
        for labels, (times, values) in raw.items():
            assert found[labels][0] == times
            np.testing.assert_allclose(found[labels][1], values, rtol=0.01)
        if selector == "m_total":
            assert source.stats.to_json()["tiersSeconds"] == [300]
            assert source.stats.to_json()["approximate"] is True
            assert "within 1%" in answer.warnings[0]
        else:
            # A tier has no sketches of the classic series of a histogram.
            assert found == raw and not answer.warnings


def test_joined_segments_that_are_too_many_for_the_query_are_refused_from_memory_too(
    lake: LakeOfSeries, org: uuid.UUID
) -> None:
    text = "count_over_time(m_total[1h])"
    for _ in range(3):
        _ask(lake.lake.query(org), text, max_tier_s=300)
    plan = LANGUAGE.compile(text, TIMES, EngineOptions(max_tier_s=300))
    source = lake.lake.query(org, QueryLimits(max_samples=1_000))
    source.prepare(plan.leaves)
    with pytest.raises(LimitHit, match="cannot hold the rows"):
        run(plan, source, lambda: None)


def test_dirty_windows_are_read_from_finer_tiers_and_raw_samples(lake: LakeOfSeries, org: uuid.UUID) -> None:
    text = "sum by (job) (rate(m_total[1h]))"
    expected = _values(_ask(lake.lake.query(org, size=Size.SMALL), text, max_tier_s=0))
    before = lake.lake.query(org, size=Size.SMALL).prepare(LANGUAGE.compile(text, TIMES, EngineOptions()).leaves)
    _state(lake, org, 3_600, 1, "dirty = true, generation = generation + 1")
    try:
        source = lake.lake.query(org, size=Size.SMALL)
        assert _values(_ask(source, text)) == expected
        (explain,) = source.stats.explains
        assert [piece.tier_s for piece in explain.pieces] == [3_600, 300, 3_600]
        assert explain.tier_reasons[-1] == (
            "no tier coarser than 1h tier: the edges of the windows are multiples of 1h, not of 1d"
        )
        # The answer before must not be served from the cache now.
        assert source.prepare(LANGUAGE.compile(text, TIMES, EngineOptions()).leaves) != before
        _state(lake, org, 300, 1, "dirty = true, generation = generation + 1")
        source = lake.lake.query(org, size=Size.SMALL)
        assert _values(_ask(source, text)) == expected
        assert source.stats.to_json()["tiersSeconds"] == [0, 3_600]
    finally:
        _state(lake, org, 3_600, 1, "dirty = false, made_generation = generation")
        _state(lake, org, 300, 1, "dirty = false, made_generation = generation")


@pytest.fixture(scope="module")
def expired(lake: LakeOfSeries) -> uuid.UUID:
    """An org whose raw samples have expired; of the first day, windows say so."""
    loaded = _loaded()
    org = lake.write(loaded, temporality="cumulative")
    _put_tier(lake, org, loaded, 300, HOUR_MS)
    _state(lake, org, 300, 0, "sealed = true")
    with lake.database.transaction() as tx:
        tx.execute(
            "UPDATE segment SET state = 'superseded', superseded_at = now(), superseded_by = segment_id"
            " WHERE org_id = %s AND tier_s = 0",
            [org],
        )
    return org


def test_series_and_labels_are_found_where_raw_samples_have_expired(
    lake: LakeOfSeries, org: uuid.UUID, expired: uuid.UUID, worker: FlightWorkers
) -> None:
    times = START_MS + HOUR_MS, START_MS + 20 * HOUR_MS
    name = [[Matcher("__name__", MatchKind.EQUAL, "m_total")]]
    kept = lake.lake.query(org)
    for source in (lake.lake.query(expired), LakeQuery(expired, Planner(lake.lake._catalog, expired), worker)):
        assert metadata.label_names(source, [], *times) == metadata.label_names(kept, [], *times)
        assert metadata.label_values(source, "n", name, *times) == ["0", "1", "2", "3"]
        found = metadata.series(source, [], *times)
        assert found == metadata.series(kept, [], *times)
        assert {labels.get("__name__") for labels in found} == {"m_total", "h_bucket", "h_count", "h_sum", "h"}
        assert metadata.metadata(source, *times) == metadata.metadata(kept, *times)
        assert source.stats.to_json()["tiersSeconds"] == [300]
        assert source.stats.warnings() == []
        assert metadata.exemplars(source, name, *times) == []
        (warning,) = source.stats.warnings()
        assert "have expired, and with them their exemplars, but for those of the samples" in warning
    assert kept.stats.to_json()["tiersSeconds"] == [0]


def test_a_query_that_needs_expired_raw_samples_says_what_it_misses(lake: LakeOfSeries, expired: uuid.UUID) -> None:
    org = expired
    source = lake.lake.query(org, size=Size.SMALL)
    _ask(source, "sum(rate(m_total[1h]))")
    assert source.stats.warnings() == []
    source = lake.lake.query(org, size=Size.SMALL)
    _ask(source, "sum(irate(m_total[1h]))")
    (warning,) = source.stats.warnings()
    assert "have expired, and are missing from this answer" in warning
    assert "irate needs samples that tiers do not keep" in warning


def test_steps_inside_of_buckets_read_raw_samples(lake: LakeOfSeries, org: uuid.UUID) -> None:
    source = lake.lake.query(org, size=Size.SMALL)
    _ask(source, "rate(m_total[1h])", replace(TIMES, start_ms=TIMES.start_ms + 7_000))
    (explain,) = source.stats.explains
    assert explain.tiers_s == {0}
    assert "the windows begin or end inside of buckets: their edges are multiples of 1s" in explain.tier_reasons[0]
