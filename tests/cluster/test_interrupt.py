"""Ctrl-C ends `make cluster` with everything that it started, also in the middle of the start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
_START_S, _END_S = 300.0, 90.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def started_with(mark: str) -> dict[int, str]:
    """Every process whose environment has the mark: whoever inherits it, whatever its session and user."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"CLUSTER_MARK={mark}\0".encode() in path.read_bytes():
                found[int(path.parent.name)] = " ".join(psutil.Process(int(path.parent.name)).cmdline())
        except (OSError, psutil.Error):
            continue  # it ended meanwhile, or is not ours
    return found


def test_interrupting_a_start_leaves_no_process() -> None:
    mark = uuid.uuid4().hex
    # Not below pytest's own folder, which ordinary users cannot enter.
    with tempfile.TemporaryDirectory(prefix="lakerunner-interrupt-", ignore_cleanup_errors=True) as scratch:
        # A group of its own, as a shell gives to what it runs in the foreground.
        cluster = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster", "--folder", scratch, "--local", "--hosts=1", "--partitions=1"],
            env={**os.environ, "CLUSTER_MARK": mark}, cwd=ROOT, stdout=subprocess.PIPE, text=True,
            process_group=0,
        )  # fmt: skip
        try:
            end = time.monotonic() + _START_S
            roles = Path(scratch) / "host-0" / "logs"
            while not list(roles.glob("*.log")):
                assert cluster.poll() is None and time.monotonic() < end
                time.sleep(0.1)
            running = "\n".join(started_with(mark).values())
            assert all(name in running for name in ("postgres", "kafka.Kafka", "lakerunner")), running
            os.killpg(cluster.pid, signal.SIGINT)
            said, _ = cluster.communicate(timeout=_END_S)
            assert cluster.returncode == 0
            assert "ended" in said.splitlines()[-1]
            assert started_with(mark) == {}
        finally:
            cluster.kill()
            for pid in started_with(mark):
                os.kill(pid, signal.SIGKILL)
