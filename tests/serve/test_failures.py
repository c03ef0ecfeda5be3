"""What breaks below the API, as its clients see it: whole answers where others can do, and never silently short."""

from __future__ import annotations

import errno
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from lakerunner.index import api_keys, orgs
from lakerunner.index.api_keys import Scope
from lakerunner.index.database import Database
from lakerunner.model.errors import Unavailable
from lakerunner.model.labels import LabelSet
from lakerunner.model.segment import Segment
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.lake import Lake, open_lake
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.series.memory_source import MemorySeries, MemorySource
from lakerunner.serve.auth import Authenticator
from lakerunner.store import keys
from lakerunner.store.object_store import ObjectStore
from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import LakeOfSeries, lake_of_series
from tests.query.worker.processes import TOKEN, WorkerProcess, until, worker_process
from tests.serve.served import AuthOf, Served, serving_lakes

START_S = 1_700_000_000
SEGMENTS = 24
RANGE = {"query": "sum(m)", "start": START_S, "end": START_S + 590, "step": 10, "nocache": 1}


def _series(number: int) -> list[MemorySeries]:
    loaded = MemorySource()
    times = (START_S + 10 * np.arange(60)) * 1000
    loaded.add(LabelSet.of({"__name__": "m", "n": str(number)}), times, np.ones(60))
    return list(loaded._series.values())


def _write(lake: LakeOfSeries) -> tuple[uuid.UUID, list[Segment]]:
    """Segments of one series each: a sum of ones counts those that were read."""
    org_id = uuid.uuid4()
    segments = [lake.put(org_id, _series(number)) for number in range(SEGMENTS)]
    lake.commit(org_id, segments)
    return org_id, segments


@pytest.fixture
def lake(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[LakeOfSeries]:
    url = postgres_server.new_database()
    with lake_of_series(tmp_path / "lake", url) as lake:
        yield lake
    postgres_server.drop_database(url)


@contextmanager
def _served(lake: LakeOfSeries, org_id: uuid.UUID, workers: Workers | None = None) -> Iterator[Served]:
    """The API over the lake, with those workers or as a single process has it."""
    opened = lake.lake if workers is None else Lake(lake.database, Catalog(lake.database), workers)
    with serving_lakes() as serve:
        yield serve(opened, AuthOf(org_id))
    if workers is not None:
        workers.close()


def _sums(answer: httpx.Response) -> set[int]:
    assert answer.status_code == 200, answer.text
    return {int(value) for _, value in answer.json()["data"]["result"][0]["values"]}


def _frames(served: Served, **fields: object) -> dict[str, Any]:
    """The last frame of each kind that a stream of the same query sends."""
    body = {"q": "sum(m)", "s": START_S * 1000, "e": (START_S + 590) * 1000, "step": "10s", "nocache": True, **fields}
    text = served.client.post("/api/v1/metrics/query", json=body).text
    frames = [orjson.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    return {frame["type"]: frame["data"] for frame in frames}


# -- the bucket ------------------------------------------------------------------------------------------------


def _gone(lake: LakeOfSeries, segments: list[Segment], _: pytest.MonkeyPatch) -> None:
    for segment in segments:
        lake.store.delete(keys.segment_keys(segment))


def _refused(lake: LakeOfSeries, segments: list[Segment], monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {key for segment in segments for key in keys.segment_keys(segment)}
    get = ObjectStore.get

    def failing(self: ObjectStore, key: str, *, etag: str | None = None) -> bytes:
        if key in bad:
            raise Unavailable(f"cannot get {key!r}: the bucket says 503")
        return get(self, key, etag=etag)

    monkeypatch.setattr(ObjectStore, "get", failing)


@pytest.mark.parametrize("broken", [_gone, _refused])
def test_a_bucket_partly_down(
    lake: LakeOfSeries,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[LakeOfSeries, list[Segment], pytest.MonkeyPatch], None],
) -> None:
    org_id, segments = _write(lake)
    broken(lake, segments[:5], monkeypatch)
    with _served(lake, org_id) as served:
        answer = served.client.get("/api/v1/query_range", params=RANGE)
        assert _sums(answer) == {SEGMENTS - 5}
        assert any(f"5 of {SEGMENTS} segments could not be read" in one for one in answer.json()["warnings"])
        whole = served.client.get("/api/v1/query_range", params={**RANGE, "partial": "false"})
        assert whole.status_code == 503
        assert "cannot answer whole" in whole.json()["error"]
        frames = _frames(served)
        assert frames["summary"]["segmentsFailed"] == 5
        assert f"5 of {SEGMENTS}" in frames["warnings"]["warnings"][0]
        assert _frames(served, partial=False)["error"]["code"] == "unavailable"


def test_a_whole_answer_is_whole_with_and_without_partial(lake: LakeOfSeries) -> None:
    org_id, _ = _write(lake)
    with _served(lake, org_id) as served:
        for partial in ("true", "false"):
            answer = served.client.get("/api/v1/query_range", params={**RANGE, "partial": partial})
            assert _sums(answer) == {SEGMENTS}
            assert "warnings" not in answer.json()


# -- the cache -------------------------------------------------------------------------------------------------


def test_bad_bytes_on_the_disk_are_fetched_again(lake: LakeOfSeries) -> None:
    org_id, _ = _write(lake)
    with _served(lake, org_id) as served:
        assert _sums(served.client.get("/api/v1/query_range", params=RANGE)) == {SEGMENTS}
        lake.lake._workers._last_resort.forget()  # type: ignore[attr-defined]
        files = sorted((lake.settings.data.dir / "cache" / "query-api").iterdir())
        assert len(files) == 2 * SEGMENTS
        for nth, path in enumerate(files):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2] if nth % 2 else bytes(len(content)))
        answer = served.client.get("/api/v1/query_range", params=RANGE)
        assert _sums(answer) == {SEGMENTS}
        assert "warnings" not in answer.json()


def test_a_full_disk_under_the_cache_is_no_failure(lake: LakeOfSeries, monkeypatch: pytest.MonkeyPatch) -> None:
    org_id, _ = _write(lake)
    full: list[str] = []
    open_ = Path.open

    def on_a_full_disk(self: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if self.suffix == ".part":
            full.append(self.name)
            # The kernel's own full disk: writing to it fails with ENOSPC.
            return open_(Path("/dev/full"), mode, 0)
        return open_(self, mode, *rest, **options)

    monkeypatch.setattr(Path, "open", on_a_full_disk)
    with pytest.raises(OSError) as reason, Path("x.part").open("wb") as file:
        file.write(b"x")
    assert reason.value.errno == errno.ENOSPC
    with _served(lake, org_id) as served:
        answer = served.client.get("/api/v1/query_range", params=RANGE)
        assert _sums(answer) == {SEGMENTS}
        assert "warnings" not in answer.json()
    assert len(full) > 2 * SEGMENTS
    assert not list((lake.settings.data.dir / "cache" / "query-api").iterdir())


# -- the index -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_queries_go_on_while_postgresql_is_down(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "pg")
    server.start()
    try:
        with ExitStack() as stack:
            lake = stack.enter_context(lake_of_series(tmp_path / "lake", server.new_database()))
            database = Database(lake.settings.index.url, connect_timeout_s=1.0, fail_fast=True)
            stack.callback(database.close)
            with database.transaction() as tx:
                org_id = orgs.create_org(tx, "ours").org_id
                secrets = [api_keys.create_key(tx, name, [Scope.QUERY], [org_id]).secret for name in "ab"]
            lake.commit(org_id, [lake.put(org_id, _series(number)) for number in range(SEGMENTS)])
            serve = stack.enter_context(serving_lakes())
            opened = open_lake(lake.settings, database)
            stack.callback(opened.close)
            served = serve(opened, Authenticator(database, required=True))
            _outage(server, served, *secrets)
    finally:
        server.stop()


def _outage(server: PostgresServer, served: Served, known: str, stranger: str) -> None:
    served.client.headers["Authorization"] = f"Bearer {known}"
    answer = served.client.get("/api/v1/query_range", params=RANGE)
    assert _sums(answer) == {SEGMENTS} and "warnings" not in answer.json()
    server.stop()
    answer = served.client.get("/api/v1/query_range", params=RANGE)
    assert _sums(answer) == {SEGMENTS}
    assert any("the index does not answer" in warning for warning in answer.json()["warnings"])
    began = time.monotonic()
    summary = _frames(served)["summary"]
    assert time.monotonic() - began < 3.0, "each query waits for the index on its own"
    assert summary["indexAgeSeconds"] > 0
    assert served.client.get("/api/v1/query_range", params={**RANGE, "partial": "0"}).status_code == 503
    other = served.client.get("/api/v1/query_range", params=RANGE, headers={"Authorization": f"Bearer {stranger}"})
    assert other.status_code == 503, "a key that was not seen before cannot be checked now"
    server.start()

    def whole() -> bool:
        return "warnings" not in served.client.get("/api/v1/query_range", params=RANGE).json()

    until(whole, 20)


# -- the workers -----------------------------------------------------------------------------------------------


@pytest.fixture
def slow_pair(lake: LakeOfSeries, tmp_path: Path) -> Iterator[list[WorkerProcess]]:
    """Two workers to which every object takes long to come: a query that has not been asked before takes seconds."""
    pair = [
        worker_process(lake, tmp_path / name, SLOW_STORE_S=0.25, LAKERUNNER_QUERY_FETCHES=4) for name in ("one", "two")
    ]
    # Both at once: each takes seconds to start.
    with ExitStack() as stack, ThreadPoolExecutor(len(pair)) as pool:
        yield list(pool.map(stack.enter_context, pair))


def _asked(served: Served, **params: object) -> tuple[httpx.Response, float]:
    answer = served.client.get("/api/v1/query_range", params={**RANGE, **params})
    return answer, time.monotonic()


def _under_way(worker: WorkerProcess) -> bool:
    return worker.metric("lakerunner_query_worker_requests") > 0


def _busy(workers: list[WorkerProcess]) -> WorkerProcess:
    """The one that the query was given to."""
    until(lambda: any(map(_under_way, workers)), 10)
    return next(filter(_under_way, workers))


@pytest.mark.slow
def test_a_worker_killed_while_it_scans(lake: LakeOfSeries, slow_pair: list[WorkerProcess]) -> None:
    org_id, _ = _write(lake)
    one, two = slow_pair
    workers = FlightWorkers(lambda: [one.address, two.address], TOKEN)
    with _served(lake, org_id, workers) as served, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(_asked, served)
        _busy(slow_pair).process.kill()
        answer, _ = asking.result(30)
        assert _sums(answer) == {SEGMENTS}
        assert "warnings" not in answer.json()
        assert served.client.get("/api/v1/query_range", params={**RANGE, "partial": "false"}).status_code == 200


@pytest.mark.slow
def test_the_only_worker_killed_while_it_scans(lake: LakeOfSeries, tmp_path: Path) -> None:
    org_id, _ = _write(lake)
    with ExitStack() as stack:
        worker = stack.enter_context(
            worker_process(lake, tmp_path / "one", SLOW_STORE_S=0.25, LAKERUNNER_QUERY_FETCHES=4)
        )
        served = stack.enter_context(_served(lake, org_id, FlightWorkers(lambda: [worker.address], TOKEN)))
        asking = stack.enter_context(ThreadPoolExecutor(1)).submit(_asked, served, partial="false")
        until(lambda: _under_way(worker), 10)
        worker.process.kill()
        killed_at = time.monotonic()
        answer, answered_at = asking.result(30)
    assert answered_at - killed_at < 1.0
    assert answer.status_code == 503
    assert f"cannot read from worker {worker.address}" in answer.json()["error"]


@pytest.mark.slow
def test_a_worker_that_hangs(lake: LakeOfSeries, slow_pair: list[WorkerProcess]) -> None:
    org_id, _ = _write(lake)
    one, two = slow_pair
    workers = FlightWorkers(lambda: [one.address, two.address], TOKEN, dead_s=2.5)
    with _served(lake, org_id, workers) as served, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(_asked, served)
        hung = _busy(slow_pair)
        hung.signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        answer, answered_at = asking.result(60)
        assert _sums(answer) == {SEGMENTS}
        assert "warnings" not in answer.json()
        # Noticed after 2.5 s; then all of it takes the other one about 6 s more.
        assert answered_at - stopped_at < 19.0
        began = time.monotonic()
        assert _sums(served.client.get("/api/v1/query_range", params=RANGE)) == {SEGMENTS}
        assert time.monotonic() - began < 1.5, "a worker that hangs is asked again"
        hung.signal(signal.SIGCONT)

        def back() -> bool:
            return served.client.get("/api/v1/query_range", params=RANGE).is_success and not workers._roster._down

        until(back, 10)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_takes_its_query_with_it(
    lake: LakeOfSeries, slow_pair: list[WorkerProcess], stream: bool
) -> None:
    org_id, _ = _write(lake)
    workers = FlightWorkers(lambda: [worker.address for worker in slow_pair], TOKEN)
    path, params = ("query_range", RANGE)
    if stream:
        path, params = "metrics/query", {"q": "sum(m)", "s": START_S * 1000, "e": (START_S + 590) * 1000}
    with _served(lake, org_id, workers) as served:
        gone_at: list[float] = []

        def leave() -> None:
            with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=served.url, timeout=1.0) as client:
                client.get(f"/api/v1/{path}", params=params)
            gone_at.append(time.monotonic())

        leaving = threading.Thread(target=leave)
        leaving.start()
        _busy(slow_pair)
        leaving.join()
        until(lambda: not any(map(_under_way, slow_pair)), 5)
        until(lambda: not any(served.api.admission._turns._running.values()), 5)
        assert time.monotonic() - gone_at[0] < 1.0, "somebody still works for a client that has gone"
