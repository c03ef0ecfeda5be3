"""The worker as a process: found by its note, asked over Flight, killed without anybody noticing in the answer."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query.lake_source import LakeSource
from lakerunner.query.planner import Planner
from lakerunner.query.promql.matchers import Matcher, MatchKind
from lakerunner.query.promql.memory_source import MemorySource
from lakerunner.query.promql.source import SelectHints
from lakerunner.query.worker.addresses import addresses_of, noted
from lakerunner.query.worker.answer import Workers
from lakerunner.query.worker.flight_workers import FlightWorkers
from lakerunner.query.worker.role import QueryWorker
from lakerunner.runtime.settings import QuerySettings, Settings
from lakerunner.runtime.settings_load import settings_as_env
from lakerunner.runtime.stop import Stop
from tests.components.process import RunningProcess
from tests.query.lake_of_series import LakeOfSeries

ROOT = Path(__file__).parents[3]
TOKEN = "shared by the test"
POINTS = 4 * 60


@contextmanager
def _worker(lake: LakeOfSeries, folder: Path) -> Iterator[tuple[RunningProcess, str]]:
    """A worker with a data folder of its own, over the lake's bucket; and where it listens."""
    env = {
        **settings_as_env(lake.settings),
        "LAKERUNNER_DATA_DIR": str(folder),
        "LAKERUNNER_STORE_URL": lake.settings.store_url,
        "LAKERUNNER_HTTP_PORT": "0",
        "LAKERUNNER_QUERY_WORKER_TOKEN": TOKEN,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    argv = [sys.executable, "-m", "tests.query.worker.worker_process"]
    with RunningProcess.start(argv, log_path=folder / "log", env=env, cwd=ROOT) as process:
        end = time.monotonic() + 30
        while not noted(folder):
            assert process.returncode is None and time.monotonic() < end, process.tail()
            time.sleep(0.05)
        yield process, noted(folder)[0]


def _select(lake: LakeOfSeries, org: uuid.UUID, workers: Workers) -> LakeSource:
    source = LakeSource(org, Planner(lake.lake._catalog, org), workers)
    batch = source.select([Matcher("__name__", MatchKind.EQUAL, "m")], 0, 1 << 40, SelectHints())
    assert len(batch.values) == POINTS * 20
    return source


@pytest.mark.slow
def test_a_killed_worker_is_not_missed(lake: LakeOfSeries, tmp_path: Path) -> None:
    loaded = MemorySource()
    for number in range(20):
        loaded.add(
            LabelSet.of({"__name__": "m", "n": str(number)}), np.arange(POINTS) * 60_000, np.arange(POINTS * 1.0)
        )
    org = lake.write(loaded)
    with ExitStack() as stack:
        started = [stack.enter_context(_worker(lake, tmp_path / name)) for name in ("one", "two", "three")]
        addresses = [address for _, address in started]
        workers = FlightWorkers(lambda: addresses, TOKEN)
        _select(lake, org, workers)
        ends = [threading.Timer(0.3, started[0][0].kill), threading.Timer(1.0, started[1][0].stop)]
        for one in ends:
            one.start()
        end = time.monotonic() + 2.5
        answers = 0
        while time.monotonic() < end:
            assert _select(lake, org, workers).stats.complete
            answers += 1
        for one in ends:
            one.join()
        assert started[0][0].returncode is not None and answers > 3
        assert started[1][0].returncode == 0, "a worker that is asked to end does, cleanly"
        assert not noted(tmp_path / "two")
        workers.close()


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
