"""Filters in the API's memory: segments that they exclude are asked of no worker, and no answer changes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence

import orjson
import pyarrow.flight as flight
import pytest

from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.model.time import TimeRange
from lakerunner.query.fanout.held_filters import Fetch, HeldFilters
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.fanout.protocol import FILTERS, SegmentObjects, filters_body
from lakerunner.query.lake import Lake
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.language import QueryOptions, RowPlan
from lakerunner.query.languages import language
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.scan.rows.filter_bytes import SegmentFilters
from lakerunner.query.series.times import QueryTimes
from tests.components.postgres import PostgresServer
from tests.query.lake_of_logs import HOUR_NS, HOURS, write_logs
from tests.query.worker_lake import PacedWorkers, WorkerLake, worker_lake

LIMIT_BYTES = 16 << 20
ALL_TIMES = TimeRange(0, HOURS * HOUR_NS)


@pytest.fixture(scope="module")
def lake(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerLake]:
    with worker_lake(tmp_path_factory.mktemp("lake"), postgres_server.new_database()) as made:
        yield made


@pytest.fixture(scope="module")
def org(lake: WorkerLake) -> uuid.UUID:
    org_id = uuid.uuid4()
    write_logs(lake, org_id)
    return org_id


class Watched:
    """A way to fetch filters that counts those that are held by now."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.held = 0

    def __call__(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> Iterator[tuple[uuid.UUID, bytes]]:
        for each in self._fetch(org_id, segments):
            yield each
            # Whoever asks for the next one has stored this one.
            self.held += 1


class Api:
    """An API with a memory of its own."""

    def __init__(self, lake: WorkerLake, org_id: uuid.UUID, fetch: Fetch | None = None) -> None:
        self.workers = PacedWorkers(lake.flight)
        self._fetch = Watched(fetch or self.workers.filters)
        filters = HeldFilters(LIMIT_BYTES, self._fetch)
        self.lake = Lake(lake.database, Catalog(lake.database), self.workers, filters)
        self._org_id = org_id

    def ask(self, text: str) -> tuple[list[str], LakeQuery]:
        times = QueryTimes(0, HOURS * 3_600_000, 1_000)
        plan = language("logql").compile(text, times, QueryOptions(limit=100))
        assert isinstance(plan, RowPlan)
        query = self.lake.query(self._org_id)
        query.prepare(plan.leaves)
        return [line for batch in query.rows(plan) for line in batch.column("line").to_pylist()], query

    def until_held(self, count: int) -> None:
        until(lambda: self._fetch.held >= count)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_absent_text_is_asked_of_no_worker(lake: WorkerLake, org: uuid.UUID) -> None:
    api = Api(lake, org)
    assert api.ask('{service_name=~".+"} |= "no such text"')[0] == []
    api.until_held(HOURS * 2)
    asked = api.workers.requests
    found, query = api.ask('{service_name=~".+"} |= "nor is this one there"')
    assert (found, api.workers.requests) == ([], asked)
    assert query.stats.row_scan["segments_excluded"] == query.stats.segments_read == HOURS * 2
    assert query.stats.row_scan["pruned_by_needles"] == query.stats.row_scan["groups"] == HOURS * 2
    assert query.stats.complete


def test_only_segments_that_may_hold_a_text_are_asked_for(lake: WorkerLake, org: uuid.UUID) -> None:
    api = Api(lake, org)
    wanted = '{service_name=~".+"} |= "hour 3 half 1 number 17"'
    before = api.ask(wanted)
    assert before[0] == ["hour 3 half 1 number 17"]
    api.until_held(HOURS * 2)
    after, query = api.ask(wanted)
    assert after == before[0]
    # The texts of an hour differ from others in a digit, which few pieces have.
    assert query.stats.row_scan["segments_excluded"] > HOURS
    assert query.stats.segments_read == query.stats.segments_planned
    by_id, query = api.ask('{service_name=~".+"} | trace_id="' + f"020{7:029d}" + '"')
    assert by_id == ["hour 2 half 0 number 7"]
    assert query.stats.row_scan["segments_excluded"] > HOURS


def test_without_filters_queries_go_on(lake: WorkerLake, org: uuid.UUID) -> None:
    asked: list[Sequence[SegmentObjects]] = []

    def refuse(org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> Iterator[tuple[uuid.UUID, bytes]]:
        asked.append(segments)
        raise Unavailable("cannot send filters: an older release")

    api = Api(lake, org, refuse)
    for _ in range(3):
        assert api.ask('{service_name=~".+"} |= "no such text"')[0] == []
        until(lambda: bool(asked))
    assert len(asked) <= 2, "a worker that refuses is left alone"


def test_filters_of_another_org_are_refused(lake: WorkerLake, org: uuid.UUID) -> None:
    segments = [SegmentObjects.of(each) for each in lake.lake.segments(org, "logs", ALL_TIMES)]
    assert len(list(lake.flight.filters(org, segments))) == HOURS * 2
    with pytest.raises(BadInput, match="is not of org"):
        list(lake.flight.filters(uuid.uuid4(), segments))
    client = flight.connect(f"grpc://127.0.0.1:{lake.worker.port}")
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(client.do_action(flight.Action(FILTERS, filters_body(org, segments, "a guess"))))
    client.close()


def test_damaged_filters_exclude_nothing(lake: WorkerLake, org: uuid.UUID) -> None:
    (segment, *_) = [SegmentObjects.of(each) for each in lake.lake.segments(org, "logs", ALL_TIMES)]
    scans = local_workers(lake.settings, "filters")
    (packed,) = scans.packed_filters([segment])
    scans.close()
    for cut in (0, 3, 40, len(packed) - 1):
        with pytest.raises(BadInput):
            SegmentFilters(packed[:cut])
    # A bit of every byte before the footer, which is last: the blocks of needle filters have checksums.
    begin = 4 + int.from_bytes(packed[:4], "little")
    end = len(packed) - orjson.loads(packed[4:begin])[-1][1]
    damaged = bytes(each ^ 1 for each in packed[begin:end])
    fetch = Watched(lambda *_: iter([(segment.segment_id, packed[:begin] + damaged + packed[end:])]))
    held = HeldFilters(LIMIT_BYTES, fetch)
    held.want(org, [segment])
    until(lambda: fetch.held == 1)
    plan = language("logql").compile(
        '{service_name=~".+"} |= "hour 0 half 0 number 17"', QueryTimes(0, 3_600_000, 1_000), QueryOptions(limit=9)
    )
    assert isinstance(plan, RowPlan)
    assert held.kept(plan.condition, [segment])[0] == [segment]


def test_what_was_decided_about_a_list_is_decided_again_when_more_filters_are_held(
    lake: WorkerLake, org: uuid.UUID
) -> None:
    segments = SegmentObjects.of_all(lake.lake.segments(org, "logs", ALL_TIMES))
    plan = language("logql").compile(
        '{service_name=~".+"} |= "hour 0 half 0 number 17"', QueryTimes(0, 3_600_000, 1_000), QueryOptions(limit=9)
    )
    assert isinstance(plan, RowPlan)
    fetch = Watched(lake.flight.filters)
    held = HeldFilters(LIMIT_BYTES, fetch)
    for _ in range(2):
        assert list(held.kept(plan.condition, segments)[0]) == list(segments), "no filter is held"
    held.want(org, segments)
    until(lambda: fetch.held == len(segments))
    until(lambda: len(held.kept(plan.condition, segments)[0]) < HOURS)
    left = held.kept(plan.condition, segments)
    assert left == held.kept(plan.condition, segments) == held.kept(plan.condition, list(segments))
    held.close()
