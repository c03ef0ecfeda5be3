"""Forked roles are processes like any other: with their own environment, output, session and exit code."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from lakerunner.ops.fork_server import ForkServer, Process, adopt_orphans, reap_orphans
from lakerunner.ops.roles import DEMO_ROLES, ROLES
from lakerunner.runtime import kernels

ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def adopting() -> Iterator[None]:
    assert adopt_orphans()
    yield
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer("tests.ops.forked_role", (), ENV)
    server.start()
    yield server
    server.close()


def fork(server: ForkServer, role: str, env: dict[str, str] | None = None) -> tuple[Process, Any]:
    """Fork a role, once the server is ready; return it and the stream of its output."""
    read, write = os.pipe()
    forked = server.spawn(role, env or {}, write, WAIT_S)
    os.close(write)
    assert forked is not None
    return forked, os.fdopen(read, "rb")


def test_a_forked_role_is_like_a_new_process(server: ForkServer) -> None:
    role, output = fork(server, "relay", {"LAKERUNNER_HTTP_PORT": "7"})
    with output:
        said = orjson.loads(output.read())
    assert said == {
        "argv": ["lakerunner", "relay"],
        "env": {"LAKERUNNER_HTTP_PORT": "7"},
        "parent": os.getpid(),
        "session": True,
    }
    assert role.wait(WAIT_S) == 7
    assert role.poll() == 7


def test_a_role_outlives_the_fork_server_and_is_named_by_ps(server: ForkServer) -> None:
    role, output = fork(server, "sleep")
    with output:
        assert output.readline()
        shown = Path(f"/proc/{role.pid}/cmdline").read_bytes().rstrip(b"\0")
        assert shown == b"lakerunner\0sleep"
        assert server.pid is not None
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
        # This one is started otherwise, and the next ones are forked again.
        assert server.spawn("relay", {}, 1) is None
        assert server.pid not in (None, killed)
        again, rest = fork(server, "relay")
        with rest:
            assert again.wait(WAIT_S) == 7
        with pytest.raises(subprocess.TimeoutExpired):
            role.wait(0.0)
        role.send_signal(signal.SIGTERM)
        assert role.wait(WAIT_S) == -signal.SIGTERM


def test_importing_the_roles_starts_no_thread() -> None:
    """Else the fork server would refuse to fork."""
    server = ForkServer("lakerunner.cli.main", [role.name for role in (*ROLES, *DEMO_ROLES)], ENV)
    server.start()
    try:
        role, output = fork(server, "--version", ENV)
        with output:
            assert output.read().startswith(b"lakerunner ")
        assert role.wait(WAIT_S) == 0
    finally:
        server.close()


def test_where_nothing_is_compiled_roles_start_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    server = ForkServer("tests.ops.forked_role", ["compact"], {**ENV, "NUMBA_CACHE_DIR": str(tmp_path)})
    server.start()
    try:
        role, output = fork(server, "relay")
        with output:
            assert role.wait(WAIT_S) == 7
        assert kernels.are_being_compiled() and not kernels.are_compiled([str])
        end = time.monotonic() + WAIT_S
        while not kernels.are_compiled([str]):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert list(tmp_path.glob("*/needles.*.nbi"))
        while kernels.are_being_compiled() or psutil.Process(server.pid).children():
            assert time.monotonic() < end, "whoever compiled is collected"
            time.sleep(0.1)
    finally:
        server.close()


def test_orphans_are_collected_and_children_are_not() -> None:
    own = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
    stranger = os.fork()
    if stranger == 0:
        os._exit(0)
    os.waitid(os.P_PID, stranger, os.WEXITED | os.WNOWAIT)
    end = time.monotonic() + WAIT_S
    reap_orphans([own.pid])
    assert own.wait() == 0
    while Path(f"/proc/{stranger}").exists():
        assert time.monotonic() < end
        reap_orphans([own.pid])
