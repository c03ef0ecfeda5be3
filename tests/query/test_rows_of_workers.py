"""Rows of logs through the planner and workers: in this process, over Flight, with workers and segments that fail."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakerunner.model.errors import Unavailable
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import QueryOptions, RowPlan
from lakerunner.query.languages import language
from lakerunner.query.limits import QueryLimits
from lakerunner.query.plan.planner import Planner
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.worker.server import WorkerServer
from lakerunner.store import keys
from tests.query.lake_of_logs import HOUR_NS, HOURS, ROWS, write_logs
from tests.query.lake_of_series import LakeOfSeries

TOKEN = "a shared secret"


def plan_of(where: str, **options: Any) -> RowPlan:
    times = QueryTimes(0, HOURS * 3_600_000, 0)
    plan = language("rows").compile(where, times, QueryOptions(signal="logs", **options))
    assert isinstance(plan, RowPlan)
    return plan


@pytest.fixture(scope="module")
def org(lake: LakeOfSeries) -> uuid.UUID:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    return org_id


@pytest.fixture
def servers(lake: LakeOfSeries, tmp_path: Path) -> Iterator[list[WorkerServer]]:
    workers = [local_workers(lake.settings, f"rows-{number}") for number in range(2)]
    servers = [WorkerServer("grpc://127.0.0.1:0", each, TOKEN, 8, 1 << 30) for each in workers]
    for server in servers:
        server.listen_in(tmp_path)
    yield servers
    for server in servers:
        server.shutdown()
    for each in workers:
        each.close()


@pytest.fixture(params=["here", "flight", "sockets"])
def query(
    request: pytest.FixtureRequest, lake: LakeOfSeries, org: uuid.UUID, servers: list[WorkerServer], tmp_path: Path
) -> Iterator[LakeQuery]:
    sockets = tmp_path if request.param == "sockets" else None
    flight = FlightWorkers(lambda: [f"127.0.0.1:{server.port}" for server in servers], TOKEN, data_dir=sockets)
    workers = lake.lake._workers if request.param == "here" else flight
    yield LakeQuery(org, Planner(lake.lake._catalog, org), workers)
    flight.close()


def _times(batches: list[pa.RecordBatch]) -> list[int]:
    return [time for batch in batches for time in batch.column("timestamp").cast(pa.int64()).to_pylist()]


def test_the_newest_rows_of_a_service(query: LakeQuery) -> None:
    batches = list(query.rows(plan_of('service_name = "s1"', limit=5)))
    (batch,) = batches
    assert set(batch.column("service_name").to_pylist()) == {"s1"}
    last = (HOURS - 1) * HOUR_NS
    expected = [(37, 1), (37, 0), (33, 1), (33, 0), (29, 1)]
    assert _times(batches) == [last + minute * 60_000_000_000 + half for minute, half in expected]
    assert query.stats.complete
    assert query.stats.row_scan["segments_passed"] > 0


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("limit", [None, 30_000])
def test_all_rows_in_order_with_one_schema(query: LakeQuery, oldest_first: bool, limit: int | None) -> None:
    batches = list(query.rows(plan_of("severity_number >= 17", limit=limit, newest_first=not oldest_first)))
    times = _times(batches)
    assert len(times) == HOURS * 2 * ROWS // 5
    assert times == sorted(times, reverse=not oldest_first)
    assert len({batch.schema for batch in batches}) == 1
    assert batches[0].schema.field("attr_n").type == pa.float64()
    assert query.stats.rows == len(times)


def test_a_trace_id(query: LakeQuery) -> None:
    (batch,) = query.rows(plan_of(f'trace_id = "020{7:029d}"', limit=10))
    assert batch.column("message").to_pylist() == ["hour 2 half 0 number 7"]
    assert not list(query.rows(plan_of('trace_id = "no such"', limit=10)))


def test_segments_of_other_services_are_pruned_by_the_index(lake: LakeOfSeries, org: uuid.UUID) -> None:
    query = LakeQuery(org, Planner(lake.lake._catalog, org), lake.lake._workers)
    assert not list(query.rows(plan_of('service_name = "nobody"', limit=10)))
    assert query.stats.segments_pruned["by_value"] == HOURS * 2
    assert query.stats.segments_read == 0


def test_another_org_sees_nothing(lake: LakeOfSeries, org: uuid.UUID) -> None:
    other = uuid.uuid4()
    query = LakeQuery(other, Planner(lake.lake._catalog, other), lake.lake._workers)
    assert not list(query.rows(plan_of("", limit=10)))


@pytest.mark.parametrize("limit", [1_000, None])
def test_a_segment_that_is_gone_is_said_to_be_missing(lake: LakeOfSeries, limit: int | None) -> None:
    org_id = uuid.uuid4()
    lost = write_logs(lake, org_id)[3]
    lake.store.delete(keys.segment_keys(lost))
    query = LakeQuery(org_id, Planner(lake.lake._catalog, org_id), lake.lake._workers)
    assert len(_times(list(query.rows(plan_of("", limit=limit))))) == (HOURS * 2 - 1) * ROWS
    assert list(query.stats.segments_failed) == [str(lost.segment_id)]
    assert "1 of 12 segments could not be read" in query.stats.warnings()[0]
    strict = LakeQuery(org_id, Planner(lake.lake._catalog, org_id), lake.lake._workers, QueryLimits(partial=False))
    with pytest.raises(Unavailable, match="cannot answer whole"):
        list(strict.rows(plan_of("", limit=limit)))


@pytest.mark.parametrize("over", ["flight", "sockets"])
@pytest.mark.parametrize("limit", [1_000, None])
def test_the_rows_of_a_worker_that_dies_are_read_by_another(
    lake: LakeOfSeries, org: uuid.UUID, servers: list[WorkerServer], limit: int | None, over: str, tmp_path: Path
) -> None:
    sockets = tmp_path if over == "sockets" else None
    flight = FlightWorkers(lambda: [f"127.0.0.1:{server.port}" for server in servers], TOKEN, data_dir=sockets)
    query = LakeQuery(org, Planner(lake.lake._catalog, org), flight)
    rows = query.rows(plan_of("", limit=limit))
    times = _times([next(rows)])
    servers[0].shutdown()
    times += _times(list(rows))
    flight.close()
    assert len(times) == HOURS * 2 * ROWS
    assert times == sorted(times, reverse=True)
    assert query.stats.complete
