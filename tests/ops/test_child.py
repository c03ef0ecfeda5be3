"""When the supervisor restarts a child that died."""

from __future__ import annotations

import subprocess
from typing import Any, cast

import pytest

from lakerunner.ops import child as child_module
from lakerunner.ops.child import Child
from lakerunner.runtime.retry import Backoff


class Clock:
    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


class Process:
    """Runs until it is told to be dead."""

    pid = 1

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(child_module, "time", clock)
    return clock


def restart_delays_s(clock: Clock, lives_s: list[float]) -> list[int]:
    """Let a child die after each of these lives, and return the waits until it was started again."""
    started: list[Process] = []

    def spawn() -> subprocess.Popen[bytes]:
        started.append(Process())
        return cast(Any, started[-1])

    child = Child("c", spawn, Backoff(1.0, 16.0))
    child.start()
    delays = []
    for life_s in lives_s:
        clock.now_s += life_s
        started[-1].code = -9
        assert child.watch() == -9
        died_s, count = clock.now_s, len(started)
        while len(started) == count:
            child.watch()
            clock.now_s += 0.125
        delays.append(int(clock.now_s - died_s))
    return delays


def test_a_child_that_dies_at_its_start_is_restarted_less_and_less_often(clock: Clock) -> None:
    assert restart_delays_s(clock, [0.0] * 7) == [0, 1, 2, 4, 8, 16, 16]


def test_the_time_that_a_child_worked_counts_as_waited(clock: Clock) -> None:
    assert restart_delays_s(clock, [0.0, 0.0, 0.0, 4.0, 5.0]) == [0, 1, 2, 0, 3]


def test_a_child_that_worked_is_restarted_at_once_however_often_it_is_killed(clock: Clock) -> None:
    assert restart_delays_s(clock, [0.0] * 5 + [30.0] * 10) == [0, 1, 2, 4, 8] + [0] * 10
    assert restart_delays_s(clock, [0.0, 0.0, 30.0, 0.0, 0.0]) == [0, 1, 0, 1, 2]
