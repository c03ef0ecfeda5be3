"""Steps evaluated by workers: to the bit what this process computes, and never less when workers fail."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.labels import LabelSet
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.fanout.protocol import (
    EvaluateRequest,
    Fragment,
    Read,
    SegmentObjects,
    read_document,
    read_request,
)
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.limits import QueryLimits
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.planner import Planner
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.block import EvaluationError
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult, QueryResult, VectorResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.query.worker.server import WorkerServer
from tests.query.engine import Engine
from tests.query.lake_of_series import LakeOfSeries

TOKEN = "a shared secret"
HOUR_MS = 3_600_000
QUERY = QueryTimes(HOUR_MS, 4 * HOUR_MS, 60_000)
OPTIONS = EngineOptions()

EXPRESSIONS = [
    "m_total",
    "sum by (job) (rate(m_total[5m]))",
    "avg by (job) (m_total)",
    "stddev without (n) (rate(m_total[5m]))",
    "topk(3, rate(m_total[5m]))",
    "limitk(2, m_total)",
    "quantile by (job) (0.9, m_total)",
    "count_values by (job) ('v', floor(m_total / 1e6))",
    "m_total / on (n) group_left g",
    "sum(rate(m_total[5m])) / sum(rate(m_total[10m] offset 30m))",
    "max_over_time(sum by (job) (rate(m_total[5m]))[30m:5m])",
    "m_total @ end() - m_total @ start()",
    "histogram_quantile(0.9, sum by (job) (rate(h[10m])))",
    "h",
    "sum(h) + sum(h offset 1h)",
    "rate(g[5m])",
    'label_replace(g, "x", "\\xff$1", "n", "(.*)")',
    "absent(nothing)",
    "info(m_total)",
    "vector(1) + 1",
    "1 / 0",
]


def _loaded() -> MemorySource:
    loaded = MemorySource()
    rng = np.random.default_rng(3)
    for number in range(12):
        labels = {"job": f"j{number % 3}", "n": str(number)}
        times = np.arange(300) * 60_000 + number
        values = np.cumsum(rng.random(300))
        values[150:] -= values[150]
        loaded.add(LabelSet.of({"__name__": "m_total", **labels}), times, values, np.full(300, 1))
        gauge = rng.normal(size=300)
        gauge[rng.integers(0, 300, 3)] = [np.nan, STALE, np.inf]
        loaded.add(LabelSet.of({"__name__": "g", "n": str(number)}), times, gauge)
        hists = [
            Histogram(
                schema=1, count=3.0 * n, sum=2.0 * n, pos_index=np.array([0, 2]), pos_count=np.array([1.0 * n, 2.0 * n])
            )
            for n in range(300)
        ]
        loaded.add(LabelSet.of({"__name__": "h", **labels}), times, np.zeros(300), histograms=hists)
    return loaded


@pytest.fixture(scope="module")
def org(lake: LakeOfSeries) -> uuid.UUID:
    return lake.write(_loaded())


@pytest.fixture(params=["flight", "sockets"])
def sockets(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The folder of the workers' sockets; None: all goes over Flight."""
    return tmp_path if request.param == "sockets" else None


@pytest.fixture
def services(lake: LakeOfSeries, sockets: Path | None) -> Iterator[list[WorkerServer]]:
    workers = local_workers(lake.settings, "pushdown-test")
    services = [WorkerServer("grpc://127.0.0.1:0", workers, TOKEN, 8, 1 << 30) for _ in range(2)]
    for service in services if sockets is not None else ():
        service.listen_in(sockets)
    yield services
    for service in services:
        service.shutdown()
    workers.close()


@pytest.fixture
def flight(services: list[WorkerServer], lake: LakeOfSeries, sockets: Path | None) -> Iterator[FlightWorkers]:
    addresses = [f"127.0.0.1:{service.port}" for service in services]
    resort = local_workers(lake.settings, "pushdown-resort")
    workers = FlightWorkers(lambda: addresses, TOKEN, last_resort=resort, data_dir=sockets)
    yield workers
    assert sockets is None or len(list(sockets.iterdir())) <= len(services)
    workers.close()


def _source(
    lake: LakeOfSeries, org: uuid.UUID, workers: Workers | None = None, limits: QueryLimits | None = None
) -> LakeQuery:
    return LakeQuery(org, Planner(lake.lake._catalog, org), workers or lake.lake._workers, limits)


def whole(source: LakeQuery, text: str, times: QueryTimes, options: EngineOptions) -> QueryResult:
    return Engine(source, options).range(text, times.start_ms, times.end_ms, times.step_ms)


def assert_same(found: QueryResult, expected: QueryResult) -> None:
    assert (found.warnings, found.infos) == (expected.warnings, expected.infos)
    if isinstance(expected.value, VectorResult):
        assert isinstance(found.value, VectorResult)
        assert found.value.labels == expected.value.labels
        assert found.value.values.tobytes() == expected.value.values.tobytes()
        assert repr(found.value.histograms) == repr(expected.value.histograms)
        return
    assert isinstance(found.value, MatrixResult)
    assert isinstance(expected.value, MatrixResult)
    for one, other in zip(found.value, expected.value, strict=True):
        assert one.labels == other.labels
        assert one.timestamps_ms.tolist() == other.timestamps_ms.tolist()
        assert one.values.tobytes() == other.values.tobytes()
        assert one.histogram_timestamps_ms.tolist() == other.histogram_timestamps_ms.tolist()
        assert repr(one.histograms) == repr(other.histograms)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_same_as_in_this_process(lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers, text: str) -> None:
    pushed = _source(lake, org, flight)
    assert_same(whole(pushed, text, QUERY, OPTIONS), whole(_source(lake, org), text, QUERY, OPTIONS))
    reads_nothing = text in ("vector(1) + 1", "1 / 0", "absent(nothing)")
    if not reads_nothing and not text.startswith("info"):
        assert sum(pushed.stats.pushed.values()) == 181
    if text != "1 / 0":
        at = 2 * HOUR_MS + 30_000
        here = Engine(_source(lake, org), OPTIONS).instant(text, at)
        assert_same(Engine(_source(lake, org, flight), OPTIONS).instant(text, at), here)


def test_the_account_is_the_same(lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers) -> None:
    pushed, here = _source(lake, org, flight), _source(lake, org)
    for source in (pushed, here):
        whole(source, "sum(rate(m_total[5m]))", QUERY, OPTIONS)
    assert pushed.stats.segments_read == here.stats.segments_read > 0
    assert pushed.stats.rows == here.stats.rows > 0
    assert pushed.stats.watermark_ms == here.stats.watermark_ms


def test_what_a_query_does_wrong_is_said_as_here(lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers) -> None:
    with pytest.raises(EvaluationError, match="found duplicate series"):
        whole(_source(lake, org, flight), "m_total + on (job) m_total", QUERY, OPTIONS)


def test_limits_hold_at_the_worker(lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers) -> None:
    with pytest.raises(LimitHit, match="more than 1,000 samples"):
        whole(_source(lake, org, flight), "m_total", QUERY, EngineOptions(max_samples=1_000))
    with pytest.raises(LimitHit, match="more than 3,984 bytes"):
        whole(_source(lake, org, flight, QueryLimits(max_samples=166)), "m_total", QUERY, OPTIONS)


def test_groups_keep_the_limit_together(lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers) -> None:
    """Either half is within the limit, and both are under way before one of them is counted."""
    whole_of = whole(_source(lake, org, flight), "m_total", QUERY, OPTIONS).samples
    with pytest.raises(LimitHit, match="more than"):
        whole(_source(lake, org, flight), "m_total", QUERY, EngineOptions(max_samples=whole_of - 1))


def test_a_mistake_of_ours_is_not_a_worker_s_death(
    lake: LakeOfSeries, org: uuid.UUID, flight: FlightWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise IndexError("a mistake of ours")

    monkeypatch.setattr("lakerunner.query.promql.language.PromQl.evaluate", mistaken)
    source = _source(lake, org, flight)
    text = "sum by (job) (rate(m_total[5m]))"
    assert_same(whole(source, text, QUERY, OPTIONS), whole(_source(lake, org), text, QUERY, OPTIONS))
    assert not source.stats.pushed
    assert not flight._roster._down


@pytest.mark.parametrize("left", [1, 0])
def test_dead_workers_cost_nothing_but_time(
    lake: LakeOfSeries, org: uuid.UUID, services: list[WorkerServer], flight: FlightWorkers, left: int
) -> None:
    for service in services[left:]:
        service.shutdown()
    text = "sum by (job) (rate(m_total[5m]))"
    source = _source(lake, org, flight)
    assert_same(whole(source, text, QUERY, OPTIONS), whole(_source(lake, org), text, QUERY, OPTIONS))
    assert source.stats.complete
    assert bool(source.stats.pushed) == bool(left)


def test_a_segment_that_is_gone_is_told_of(lake: LakeOfSeries, flight: FlightWorkers) -> None:
    org = lake.write(_loaded())
    source = _source(lake, org, flight)
    source.prepare([Leaf.of_samples((), 0, 10 * HOUR_MS)])
    one = source._plan(LEAF).segments[1]
    for path in lake.settings.data.dir.rglob(f"*{one.segment_id}*"):
        path.unlink()
    result = whole(source, "count(m_total)", QUERY, OPTIONS)
    assert isinstance(result.value, MatrixResult)
    assert len(result.value.series[0].values) < 181
    assert len(source.stats.segments_failed) == 1
    assert "missing" in source.stats.warnings()[0]


LEAF = Leaf.of_samples((Matcher("__name__", MatchKind.EQUAL, "m_total"),), 0, 10 * HOUR_MS)


def test_a_request_cannot_reach_into_another_org() -> None:
    mine, other = uuid.uuid4(), uuid.uuid4()
    key = f"db/{other}/c/20260101/metrics/00/tbl_{uuid.uuid4()}.parquet"
    leaf = Leaf.of_samples((Matcher("a", MatchKind.REGEX, "b\udcff.*"),), -(1 << 60), 1 << 60)
    fragment = Fragment("promql", b"{}", (Read(leaf, (0,)),))

    def request(*segments: SegmentObjects) -> EvaluateRequest:
        deadline_s = time.monotonic() + 100
        return EvaluateRequest(
            org_id=mine,
            query_id=uuid.uuid4(),
            segments=segments,
            deadline_s=deadline_s,
            max_bytes=10,
            fragment=fragment,
        )

    back = read_request(read_document(request().to_ticket(TOKEN)))
    assert isinstance(back, EvaluateRequest)
    assert back.fragment == fragment
    assert 90 < back.time_left_s <= 100
    with pytest.raises(BadInput, match="not of org"):
        read_request(read_document(request(SegmentObjects(uuid.uuid4(), (key,))).to_ticket(TOKEN)))
    with pytest.raises(BadInput, match="cannot read a ticket"):
        read_request({"org": "x"})
