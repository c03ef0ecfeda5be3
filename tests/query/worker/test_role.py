"""The worker as a process: found by its note, asked over Flight, killed without anybody noticing in the answer."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.ops.child import Child
from lakerunner.query.fanout.addresses import addresses_of, noted
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.plan.planner import Planner
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.worker.role import QueryWorker
from lakerunner.runtime.memory import own_bytes
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import QuerySettings, Settings
from lakerunner.runtime.stop import Stop
from tests.components.process import free_port
from tests.query.lake_of_series import LakeOfSeries
from tests.query.worker.processes import ARGV, TOKEN, until, worker_env, worker_process

POINTS = 4 * 60


def _select(lake: LakeOfSeries, org: uuid.UUID, workers: Workers) -> LakeQuery:
    source = LakeQuery(org, Planner(lake.lake._catalog, org), workers)
    batch = source.select([Matcher("__name__", MatchKind.EQUAL, "m")], 0, 1 << 40)
    assert len(batch.values) == POINTS * 20
    return source


def _write(lake: LakeOfSeries) -> uuid.UUID:
    loaded = MemorySource()
    for number in range(20):
        loaded.add(
            LabelSet.of({"__name__": "m", "n": str(number)}), np.arange(POINTS) * 60_000, np.arange(POINTS * 1.0)
        )
    return lake.write(loaded)


@pytest.mark.slow
def test_a_killed_worker_is_not_missed(lake: LakeOfSeries, tmp_path: Path) -> None:
    org = _write(lake)
    with ExitStack() as stack:
        started = [stack.enter_context(worker_process(lake, tmp_path / name)) for name in ("one", "two", "three")]
        addresses = [worker.address for worker in started]
        workers = FlightWorkers(lambda: addresses, TOKEN)
        _select(lake, org, workers)
        ends = [threading.Timer(0.3, started[0].process.kill), threading.Timer(1.0, started[1].process.stop)]
        for one in ends:
            one.start()
        answers_after = 0
        while answers_after < 5:
            answers_after += not any(one.is_alive() for one in ends)
            began = time.monotonic()
            assert _select(lake, org, workers).stats.complete
            assert time.monotonic() - began < 5.0, "an answer waited for a worker that is gone"
        assert started[0].process.returncode == -signal.SIGKILL
        assert started[1].process.returncode == 0, "a worker that is asked to end does, cleanly"
        assert not noted(tmp_path / "two")
        workers.close()


@pytest.mark.slow
def test_a_worker_that_grows_is_started_anew_and_no_answer_is_missed(
    lake: LakeOfSeries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker alone, which loses memory with every request: it must go, and queries must wait for the next."""
    monkeypatch.setattr("lakerunner.ops.child.SETTLED_S", 0.5)
    org = _write(lake)
    env = worker_env(
        lake,
        tmp_path,
        free_port(),
        LEAK_BYTES=20_000_000,
        LAKERUNNER_QUERY_WORKER_PORT=free_port(),
        LAKERUNNER_QUERY_WORKER_MEMORY_BYTES=400_000_000,
        LAKERUNNER_QUERY_WORKER_MEMORY_PATIENCE_S=0.6,
    )
    log_path = tmp_path / "log"

    def spawn() -> subprocess.Popen[bytes]:
        with log_path.open("ab") as log:
            return subprocess.Popen(ARGV, env={**os.environ, **env}, stdout=log, stderr=log, start_new_session=True)

    child = Child("query-worker", spawn, Backoff(30.0, 30.0))
    child.start()
    over = threading.Event()

    def supervise() -> None:
        while not over.wait(0.05):
            child.watch()

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    address = f"127.0.0.1:{env['LAKERUNNER_QUERY_WORKER_PORT']}"
    workers = FlightWorkers(lambda: [address], TOKEN)
    try:
        until(lambda: bool(noted(tmp_path)), 30, log_path.read_text)
        slowest_s = 0.0
        end = time.monotonic() + 90
        while child.recycles < 2:
            assert time.monotonic() < end, log_path.read_text()
            began = time.monotonic()
            assert _select(lake, org, workers).stats.complete
            slowest_s = max(slowest_s, time.monotonic() - began)
            time.sleep(0.02)
        assert _select(lake, org, workers).stats.complete
        assert child.restarts == 0, "a worker that is started anew has not crashed"
        assert slowest_s < 15.0
        assert own_bytes(child.pid) < 400_000_000
    finally:
        over.set()
        supervisor.join()
        child.terminate()
        assert child.wait(15)
        workers.close()
    text = log_path.read_text()
    assert text.index("let caches go") < text.index("draining") < text.index("recycled")


def test_a_worker_is_found_by_its_note(lake: LakeOfSeries, tmp_path: Path) -> None:
    settings = lake.settings.model_copy(update={"data": lake.settings.data.model_copy(update={"dir": tmp_path})})
    addresses = addresses_of(settings)
    assert addresses() == []
    worker = QueryWorker(settings)
    worker.start()
    assert addresses() == [worker.address]
    worker.probes()["store"]()
    stop = Stop()
    stop.request()
    worker.run(stop)
    worker.close()
    assert addresses() == []


def test_a_worker_for_others_needs_a_secret(tmp_path: Path) -> None:
    worker = QueryWorker(Settings(query=QuerySettings(worker_host="0.0.0.0")))
    with pytest.raises(BadInput, match="without a secret"):
        worker.start()
    worker.close()


@pytest.mark.parametrize("given", ["nonsense", "host:", "host:99999", "a:1,b"])
def test_addresses_that_are_none(given: str) -> None:
    with pytest.raises(BadInput, match="as a worker's address"):
        addresses_of(Settings(query=QuerySettings(workers=given)))


def test_a_name_stands_for_all_its_addresses() -> None:
    assert "127.0.0.1:7180" in addresses_of(Settings(query=QuerySettings(workers="dns://localhost:7180")))()
    assert addresses_of(Settings(query=QuerySettings(workers="a:1, b:2")))() == ["a:1", "b:2"]
