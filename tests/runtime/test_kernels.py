"""Kernels are compiled once per installation, by several processes, while others start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakerunner.runtime import kernels

_WAIT_S = 20.0
#: Compiles shares that note who ran them, and one that fails if that is wanted. A process of its own: it forks.
_SCRIPT = """
import os, sys, time
from functools import partial
from pathlib import Path
from lakerunner.runtime import kernels

kernels._PACKAGE = Path(sys.argv[1])

def share(number):
    time.sleep(0.05)
    with open(sys.argv[2], "a") as noted:
        noted.write(f"{number} {os.getpid()}\\n")
    if str(number) == sys.argv[3]:
        raise ValueError("no such kernel")

shares = [partial(share, number) for number in range(8)]
before = kernels.are_compiled(shares)
done = kernels.compile_kernels(shares, 2)
print(before, done, kernels.are_compiled(shares))
assert not kernels.are_compiled([*shares, share]), "one share more"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "kernel.py").write_text("@njit(cache=True)\ndef kernel(): ...\n")
    return tmp_path


def compile_there(folder: Path, fails: str = "none") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _SCRIPT, str(folder / "package"), str(folder / "noted"), fails]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=True)


def test_processes_share_the_work_and_leave_a_mark(folder: Path) -> None:
    assert compile_there(folder).stdout.split() == ["False", "True", "True"]
    noted = [line.split() for line in (folder / "noted").read_text().splitlines()]
    assert sorted(number for number, _ in noted) == list("01234567")
    assert len({process for _, process in noted}) == 2
    assert compile_there(folder).stdout.split() == ["True", "True", "True"]
    os.utime(folder / "package" / "kernel.py", ns=(0, 0))
    assert compile_there(folder).stdout.split()[0] == "False", "the source changed"


def test_there_is_no_mark_if_a_share_failed(folder: Path) -> None:
    found = compile_there(folder, fails="3")
    assert found.stdout.split() == ["False", "False", "False"]
    assert "no such kernel" in found.stderr


def test_only_one_compiles(folder: Path) -> None:
    assert not kernels.are_being_compiled()
    lock = kernels.begin_compiling()
    assert lock is not None
    with lock:
        assert kernels.begin_compiling() is None
        assert kernels.are_being_compiled()
    assert not kernels.are_being_compiled()


def test_roles_start_while_kernels_are_compiled_and_load_them_afterwards(folder: Path) -> None:
    loaded: list[str] = []

    def share() -> None:
        loaded.append("share")

    lock = kernels.begin_compiling()
    assert lock is not None
    with lock:
        kernels.load_kernels([share])
        assert not loaded
    end = time.monotonic() + _WAIT_S
    while not loaded:
        assert time.monotonic() < end
        time.sleep(0.01)
    kernels.load_kernels([share])
    assert loaded == ["share"], "once in a process"
