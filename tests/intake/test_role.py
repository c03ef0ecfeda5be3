"""The role as a process: killed at its crash points it loses and duplicates nothing, and it reports its health."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakerunner.runtime.settings.load import settings_as_env
from tests.components.process import RunningProcess
from tests.intake.conftest import Lake, S3Lake, write

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., RunningProcess]:
    def start(lake: Lake, **env: str) -> RunningProcess:
        variables = {**settings_as_env(lake.settings), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **env}
        argv = [sys.executable, "-m", "tests.intake.worker"]
        return RunningProcess.start(argv, log_path=tmp_path / "worker.log", env=variables, cwd=ROOT)

    return start


def wait_for(condition: Callable[[], Any], process: RunningProcess, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, process.tail()
        time.sleep(0.05)


def port_of(process: RunningProcess) -> int:
    found: list[str] = []

    def listening() -> bool:
        found[:] = re.findall(r'"port": (\d+)', process.log_path.read_text())
        return bool(found)

    wait_for(listening, process)
    return int(found[-1])


def readiness(port: int) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        with error:
            return dict(json.load(error))


@pytest.mark.parametrize("point", ["intake_before_record", "intake_after_record"])
def test_killed_with_a_queue_it_loses_and_doubles_nothing(
    make_s3_lake: Callable[..., S3Lake], start: Callable[..., RunningProcess], point: str
) -> None:
    s3_lake = make_s3_lake(visibility_s=3, folder=False, batch=10)
    s3_lake.lake.add_profile("otel-raw/")
    keys = [f"otel-raw/logs_{number}.json" for number in range(25)]
    for key in keys:
        s3_lake.put(key)
    # The second batch: the first, with its acknowledgement, is behind it.
    process = start(s3_lake.lake, LAKERUNNER_CRASH_POINT=f"{point}:2")
    wait_for(lambda: process.returncode is not None, process)
    assert process.returncode == -signal.SIGKILL
    recorded = len(s3_lake.lake.ledger())
    assert 0 < recorded < 25
    assert s3_lake.queued()[1] > 0, "something must be unacknowledged, or nothing was tested"
    process = start(s3_lake.lake)
    try:
        wait_for(lambda: s3_lake.queued() == (0, 0), process)
    finally:
        process.kill()
    s3_lake.lake.assert_each_once(keys)


@pytest.mark.parametrize("point", ["intake_before_record", "intake_after_record"])
def test_killed_with_a_folder_it_loses_and_doubles_nothing(
    lake: Lake, start: Callable[..., RunningProcess], point: str
) -> None:
    keys = [f"otel-raw/logs_{number}.json" for number in range(25)]
    for key in keys:
        write(Path(lake.bucket.removeprefix("file://")), key)
    process = start(lake, LAKERUNNER_CRASH_POINT=point)
    wait_for(lambda: process.returncode is not None, process)
    assert process.returncode == -signal.SIGKILL
    assert len(lake.ledger()) == (25 if point == "intake_after_record" else 0)
    with start(lake) as process:
        wait_for(lambda: len(lake.ledger()) == 25, process)
        time.sleep(0.5)
    lake.assert_each_once(keys)


def test_it_is_ready_serves_its_webhook_and_ends_when_asked(lake: Lake, start: Callable[..., RunningProcess]) -> None:
    process = start(lake)
    port = port_of(process)
    wait_for(lambda: readiness(port)["ready"], process)
    assert readiness(port)["checks"] == {"index": "ok", "folder": "ok"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/intake/s3", data=b"{}", timeout=5)
    with refused.value:
        assert refused.value.code == 401
    assert process.stop() == 0


def test_a_source_in_trouble_is_told_and_does_not_stop_the_others(
    make_lake: Callable[..., Lake], start: Callable[..., RunningProcess]
) -> None:
    lake = make_lake(sqs_url="http://127.0.0.1:9/q", sqs_endpoint="http://127.0.0.1:9", sqs_region="us-east-1")
    write(Path(lake.bucket.removeprefix("file://")), "otel-raw/logs_1.json")
    with start(lake) as process:
        port = port_of(process)
        wait_for(lambda: "cannot receive" in readiness(port)["checks"].get("sqs", ""), process)
        wait_for(lambda: lake.keys() == ["otel-raw/logs_1.json"], process)


def test_a_missing_library_is_one_line(lake: Lake, start: Callable[..., RunningProcess], tmp_path: Path) -> None:
    hidden = tmp_path / "hidden" / "boto3"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')")
    path = f"{hidden.parent}:{ROOT / 'src'}:{ROOT}"
    process = start(lake, PYTHONPATH=path, LAKERUNNER_INTAKE_SQS_URL="http://q")
    wait_for(lambda: process.returncode is not None, process)
    assert process.returncode == 2
    assert "pip install 'lakerunner[aws]'" in process.tail()
    assert "Traceback" not in process.tail()
