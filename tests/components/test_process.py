"""Component processes: a death shows the log, and stopping always succeeds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.components.process import ComponentFailed, RunningProcess, free_port

_LISTEN = "import socket,sys,time; s=socket.create_server(('127.0.0.1',int(sys.argv[1]))); time.sleep(60)"
_STUBBORN = (
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)


def test_a_port_is_awaited_and_the_process_stopped(tmp_path: Path) -> None:
    port = free_port()
    with RunningProcess.start([sys.executable, "-c", _LISTEN, str(port)], log_path=tmp_path / "log") as process:
        process.wait_for_port("127.0.0.1", port, 10)
        assert process.returncode is None
    assert process.returncode is not None


def test_a_death_shows_the_log(tmp_path: Path) -> None:
    script = "print('the disk is made of cheese'); raise SystemExit(3)"
    with (
        RunningProcess.start([sys.executable, "-c", script], log_path=tmp_path / "log") as process,
        pytest.raises(ComponentFailed, match=r"(?s)ended with 3.*made of cheese"),
    ):
        process.wait_for_port("127.0.0.1", free_port(), 10)


def test_a_port_that_never_answers_is_reported(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        RunningProcess.start(argv, log_path=tmp_path / "log") as process,
        pytest.raises(ComponentFailed, match="did not answer"),
    ):
        process.wait_for_port("127.0.0.1", free_port(), 0.3)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = RunningProcess.start([sys.executable, "-c", _STUBBORN], log_path=log)
    while "ready" not in log.read_text():
        time.sleep(0.02)
    assert process.stop(timeout_s=0.3) == -9
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
