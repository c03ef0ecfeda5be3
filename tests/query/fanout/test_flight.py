"""Workers over Flight: the same samples as in this process, whoever dies, hangs, is cancelled or not trusted."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pyarrow.flight as flight
import pytest

from lakerunner.index.lookup import Want
from lakerunner.model.errors import BadInput, LimitHit, Unavailable
from lakerunner.model.labels import LabelSet
from lakerunner.model.time import TimeRange
from lakerunner.query.fanout.addresses import addresses_of
from lakerunner.query.fanout.answer import Check, SegmentAnswer, Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.fanout.placement import ranked
from lakerunner.query.fanout.protocol import Kind, ScanRequest, SegmentObjects, read_request
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.limits import QueryLimits
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.planner import Planner
from lakerunner.query.series.batch import STALE, SeriesBatch
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.worker.server import CANCEL, WorkerServer
from lakerunner.runtime.settings import QuerySettings, Settings
from tests.components.process import free_port
from tests.query.lake_of_series import LakeOfSeries
from tests.query.worker.processes import until

TOKEN = "a shared secret"
EVER = Want("metrics", TimeRange(0, 1 << 60))
ALL = [Matcher("__name__", MatchKind.REGEX, ".*")]


def _loaded() -> MemorySource:
    loaded = MemorySource()
    hist = Histogram(
        schema=-53, count=3.0, sum=2.0, pos_index=np.array([0, 2]), pos_count=np.array([1.0, 2.0]), bounds=(1.0, 2.0)
    )
    wide = Histogram(schema=2, count=9.0, sum=4.0, pos_index=np.array([-3, 5]), pos_count=np.array([4.0, 5.0]))
    for number in range(40):
        times = np.arange(300) * 60_000 + number
        loaded.add(LabelSet.of({"__name__": "m", "n": str(number)}), times, np.arange(300.0), times - 30_000)
    times = np.arange(10) * 3_600_000
    loaded.add(LabelSet.of({"__name__": "h"}), times, np.zeros(10), histograms=[hist, wide, None, hist, None] * 2)
    loaded.add(LabelSet.of({"__name__": "s"}), times[:2], np.array([1.0, STALE]))
    return loaded


@pytest.fixture(scope="module")
def org(lake: LakeOfSeries) -> uuid.UUID:
    return lake.write(_loaded(), temporality="cumulative")


def _select(
    lake: LakeOfSeries,
    org: uuid.UUID,
    workers: Workers,
    limits: QueryLimits | None = None,
    cancelled: Check = lambda: None,
) -> tuple[SeriesBatch, LakeQuery]:
    source = LakeQuery(org, Planner(lake.lake._catalog, org), workers, limits, cancelled)
    return source.select(ALL, 0, 40_000_000), source


@pytest.fixture
def services(lake: LakeOfSeries) -> Iterator[list[WorkerServer]]:
    workers = local_workers(lake.settings, "flight-test")
    services = [WorkerServer("grpc://127.0.0.1:0", workers, TOKEN, 8, 1 << 30) for _ in range(3)]
    yield services
    for service in services:
        service.shutdown()
    workers.close()


def _client(services: list[WorkerServer], **options: object) -> FlightWorkers:
    addresses = [f"127.0.0.1:{service.port}" for service in services]
    return FlightWorkers(lambda: addresses, TOKEN, **options)  # type: ignore[arg-type]


def _same(got: SeriesBatch, expected: SeriesBatch) -> None:
    assert list(got.labels) == list(expected.labels)
    np.testing.assert_array_equal(got.offsets, expected.offsets)
    np.testing.assert_array_equal(got.timestamps_ms, expected.timestamps_ms)
    np.testing.assert_array_equal(got.values.view(np.uint64), expected.values.view(np.uint64))
    assert got.start_timestamps_ms is not None and expected.start_timestamps_ms is not None
    np.testing.assert_array_equal(got.start_timestamps_ms, expected.start_timestamps_ms)
    mine, other = got.histograms, expected.histograms
    assert mine is not None and other is not None
    np.testing.assert_array_equal(mine.row >= 0, other.row >= 0)
    for at in np.flatnonzero(mine.row >= 0).tolist():
        assert repr(mine.at(int(mine.row[at]))) == repr(other.at(int(other.row[at])))


def test_the_same_as_in_this_process(lake: LakeOfSeries, org: uuid.UUID, services: list[WorkerServer]) -> None:
    workers = _client(services)
    got, source = _select(lake, org, workers)
    expected, _ = _select(lake, org, lake.lake._workers)
    _same(got, expected)
    assert len(got.values) > 12_000
    assert source.stats.segments_read == source.stats.segments_planned > 3
    workers.close()


def test_the_share_of_a_dead_worker_is_read_by_others(
    lake: LakeOfSeries, org: uuid.UUID, services: list[WorkerServer]
) -> None:
    workers = _client(services)
    services[0].shutdown()
    services[1].shutdown()
    got, source = _select(lake, org, workers)
    _same(got, _select(lake, org, lake.lake._workers)[0])
    assert source.stats.complete
    workers.close()


def test_no_worker_at_all_is_an_error_not_an_empty_answer(
    lake: LakeOfSeries, org: uuid.UUID, services: list[WorkerServer]
) -> None:
    workers = _client(services, patience_s=0.5)
    for service in services:
        service.shutdown()
    with pytest.raises(Unavailable, match="cannot read"):
        _select(lake, org, workers)
    workers.close()


def test_this_process_is_the_last_resort(lake: LakeOfSeries, org: uuid.UUID) -> None:
    workers = FlightWorkers(lambda: ["127.0.0.1:1"], TOKEN, last_resort=local_workers(lake.settings, "resort"))
    assert _select(lake, org, workers)[1].stats.complete
    workers.close()


def test_a_wrong_token_reads_nothing(lake: LakeOfSeries, org: uuid.UUID, services: list[WorkerServer]) -> None:
    workers = FlightWorkers(lambda: [f"127.0.0.1:{services[0].port}"], "guessed")
    with pytest.raises(Unavailable, match="token is not its own"):
        _select(lake, org, workers)
    workers.close()


def test_an_answer_above_the_limit_is_refused(lake: LakeOfSeries, org: uuid.UUID) -> None:
    scanning = local_workers(lake.settings, "flight-small")
    small = WorkerServer("grpc://127.0.0.1:0", scanning, TOKEN, 8, 10_000)
    workers = _client([small])
    with pytest.raises(LimitHit, match="more than 10,000 bytes"):
        _select(lake, org, workers)
    workers.close()
    small.shutdown()
    scanning.close()


class _Endless:
    """Scans for ever, looking every few milliseconds whether it should."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def scan(self, request: ScanRequest, check: Check) -> Iterator[SegmentAnswer]:
        self.begun.set()
        try:
            while True:
                check()
                time.sleep(0.01)
        finally:
            self.ended.set()
        yield

    def close(self) -> None:
        pass


@pytest.fixture
def endless() -> Iterator[tuple[_Endless, WorkerServer]]:
    scanner = _Endless()
    service = WorkerServer("grpc://127.0.0.1:0", scanner, TOKEN, 8, 1 << 30)
    yield scanner, service
    service.shutdown()


def test_a_query_that_nobody_waits_for_ends_within_a_second(
    lake: LakeOfSeries, org: uuid.UUID, endless: tuple[_Endless, WorkerServer]
) -> None:
    scanner, service = endless
    workers = _client([service])

    def gone() -> None:
        if scanner.begun.is_set():
            raise LimitHit("the client has gone")

    with pytest.raises(LimitHit, match="gone"):
        _select(lake, org, workers, cancelled=gone)
    assert scanner.ended.wait(1.0), "the worker still scans"
    workers.close()


def test_a_cancel_ends_a_query_within_a_second(
    lake: LakeOfSeries, org: uuid.UUID, endless: tuple[_Endless, WorkerServer]
) -> None:
    scanner, service = endless
    workers = _client([service])
    source = LakeQuery(org, Planner(lake.lake._catalog, org), workers)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            source.select(ALL, 0, 40_000_000)
        except LimitHit as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert scanner.begun.wait(5)
    client = flight.connect(f"grpc://127.0.0.1:{service.port}")
    body = b'{"token": "%s", "query": "%s"}' % (TOKEN.encode(), str(source.query_id).encode())
    list(client.do_action(flight.Action(CANCEL, body)))
    assert scanner.ended.wait(1.0), "the worker still scans"
    asking.join(5)
    assert "cancelled" in str(failures[0])
    client.close()
    workers.close()


def test_a_worker_that_hangs_is_left(
    lake: LakeOfSeries, org: uuid.UUID, endless: tuple[_Endless, WorkerServer], services: list[WorkerServer]
) -> None:
    workers = _client([endless[1], services[0]], stall_s=0.3)
    assert _select(lake, org, workers)[1].stats.complete
    workers.close()


def test_a_query_out_of_time_ends(lake: LakeOfSeries, org: uuid.UUID, endless: tuple[_Endless, WorkerServer]) -> None:
    workers = _client([endless[1]])
    with pytest.raises(LimitHit):
        _select(lake, org, workers, QueryLimits(timeout_s=0.3))
    workers.close()


def test_a_ticket_cannot_reach_into_another_org(lake: LakeOfSeries, org: uuid.UUID) -> None:
    segments = lake.lake._catalog.lookup(org, [EVER]).segments
    request = replace(_any_request(), segments=tuple(map(SegmentObjects.of, segments)))
    with pytest.raises(BadInput, match="not of org"):
        read_request(orjson.loads(request.to_ticket(TOKEN)))


def _named(monkeypatch: pytest.MonkeyPatch, hosts: list[str]) -> None:
    """A name whose addresses are those of the list, whatever they are when it is asked for."""

    def answered(host: str, port: int, **_: object) -> list[object]:
        assert host == "workers.internal"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", answered)
    monkeypatch.setattr("lakerunner.query.fanout.addresses._DNS_TTL_S", 0.05)


def _fair_port(lake: LakeOfSeries, org: uuid.UUID) -> int:
    """A port on which each worker that comes below has a share: of a handful of segments, one may well get none."""
    slots = [SegmentObjects.of(one).slot for one in lake.lake._catalog.lookup(org, [EVER]).segments]
    while True:
        port = free_port()
        there = ([2, 3], [2, 3, 4], [3, 4, 5])
        known = [[f"127.0.0.{host}:{port}" for host in hosts] for hosts in there]
        if all(any(ranked(hosts, org, slot)[0] == hosts[-1] for slot in slots) for hosts in known):
            return port


def test_workers_come_and_go_under_load(lake: LakeOfSeries, org: uuid.UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four clients ask without a pause while workers join, leave in order, die and come back: no answer is missed."""
    port, scanning = _fair_port(lake, org), local_workers(lake.settings, "coming-and-going")
    hosts: list[str] = []
    running: dict[str, WorkerServer] = {}

    def come(host: str) -> None:
        running[host] = WorkerServer(f"grpc://{host}:{port}", scanning, TOKEN, 8, 1 << 30)
        hosts.append(host)

    def leave(host: str) -> None:
        hosts.remove(host)
        running[host].drain()
        running.pop(host).shutdown()

    def die(host: str) -> None:
        running.pop(host).shutdown()

    come("127.0.0.2")
    _named(monkeypatch, hosts)
    workers = FlightWorkers(
        addresses_of(Settings(query=QuerySettings(workers=f"dns://workers.internal:{port}"))), TOKEN
    )
    over = threading.Event()
    read: Counter[str] = Counter()
    client = workers._connections.client

    def noting(address: str) -> Any:
        read[address] += 1
        return client(address)

    monkeypatch.setattr(workers._connections, "client", noting)

    def ask() -> int:
        answers = 0
        while not over.is_set():
            assert _select(lake, org, workers)[1].stats.complete
            answers += 1
        return answers

    changes = (
        (come, "127.0.0.3"), (come, "127.0.0.4"), (leave, "127.0.0.2"), (die, "127.0.0.3"),
        (come, "127.0.0.5"), (leave, "127.0.0.4"),
    )  # fmt: skip
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for change, host in changes:
                change(host)
                time.sleep(0.3)
                if change is come:
                    # A worker that came is used, without anybody's doing.
                    until(lambda address=f"{host}:{port}": bool(read[address]), 20)  # type: ignore[misc]
        finally:
            over.set()
        assert min(one.result(60) for one in asking) > 0
    assert len(workers._connections) <= 2, "connections to workers that have gone are kept"
    workers.close()
    for service in running.values():
        service.shutdown()
    scanning.close()


def test_a_worker_that_drains_ends_what_it_has_and_takes_no_more(
    lake: LakeOfSeries, org: uuid.UUID, endless: tuple[_Endless, WorkerServer], services: list[WorkerServer]
) -> None:
    scanner, service = endless
    client = flight.connect(f"grpc://127.0.0.1:{service.port}")
    reader = client.do_get(flight.Ticket(_any_request().to_ticket(TOKEN)))
    assert scanner.begun.wait(5)
    service.drain()
    assert service.under_way == 1
    workers = _client([service, *services], patience_s=5)
    assert _select(lake, org, workers)[1].stats.complete
    assert not scanner.ended.is_set(), "what it had goes on"
    with pytest.raises(flight.FlightServerError, match="ending what it has") as refused:
        client.do_get(flight.Ticket(_any_request().to_ticket(TOKEN))).read_all()
    assert refused.value.extra_info == b"draining"
    reader.cancel()
    assert scanner.ended.wait(1.0)
    workers.close()
    client.close()


def _any_request() -> ScanRequest:
    return ScanRequest(
        org_id=uuid.uuid4(),
        query_id=uuid.uuid4(),
        segments=(),
        deadline_s=time.monotonic() + 60,
        max_bytes=1 << 30,
        kind=Kind.SAMPLES,
        leaf=Leaf.of_samples((), 0, 1),
    )


@pytest.mark.parametrize("body", [b"nothing", b"[]", b'{"token": "guessed"}', b'{"token": "%s"}' % TOKEN.encode()])
def test_actions_that_cannot_be_done(services: list[WorkerServer], body: bytes) -> None:
    with flight.connect(f"grpc://127.0.0.1:{services[0].port}") as client, pytest.raises(flight.FlightError):
        list(client.do_action(flight.Action(CANCEL, body)))
