"""Measure wall and CPU time of a query on each server. Servers take turns, so that other load affects all equally."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bench.served.server import Server

#: Short queries are repeated for this long per turn: a single one is below the resolution of the CPU clock.
_TURN_S, _MAX_REPEATS = 0.2, 40
#: A server is idle that takes less than this share of a core for so long.
_IDLE_SHARE, _IDLE_LOOK_S, _IDLE_WITHIN_S = 0.1, 1.0, 30.0


class Case(Protocol):
    """A request that is measured."""

    @property
    def path(self) -> str: ...

    @property
    def fields(self) -> Sequence[tuple[str, str]]: ...


@dataclass(slots=True)
class Spent:
    """The wall time of every call, and the CPU time per call of every turn."""

    walls_ms: list[float] = field(default_factory=list)
    cpus_ms: list[float] = field(default_factory=list)

    @property
    def wall_ms(self) -> float:
        return statistics.median(self.walls_ms)

    @property
    def cpu_ms(self) -> float:
        return statistics.median(self.cpus_ms)


def hot(servers: Sequence[Server], case: Case | Sequence[Case], rounds: int) -> list[Spent]:
    """Measure a warm query. One more call here determines how often a turn repeats it, and a turn of each goes before.

    A server that has just started takes more for its first hundred requests, whatever they ask.
    """
    spent = [Spent() for _ in servers]
    repeats = []
    asked = _of_each(servers, case)
    for server, one in zip(servers, asked, strict=True):
        began = time.perf_counter()
        server.ask(one.path, one.fields)
        taken_s = time.perf_counter() - began
        repeats.append(min(_MAX_REPEATS, max(1, math.ceil(_TURN_S / taken_s))))
    for server, one, times in zip(servers, asked, repeats, strict=True):
        turn(server, one, Spent(), times)
    for _ in range(rounds):
        for server, one, so_far, times in zip(servers, asked, spent, repeats, strict=True):
            turn(server, one, so_far, times)
    return spent


def cold(servers: Sequence[Server], case: Case | Sequence[Case], rounds: int) -> list[Spent]:
    """Measure the first query after a restart, with only the operating system's cache warm."""
    spent = [Spent() for _ in servers]
    for _ in range(rounds):
        for server, one, so_far in zip(servers, _of_each(servers, case), spent, strict=True):
            server.stop()
            server.forget()
            server.start()
            wait_until_idle(server)
            turn(server, one, so_far, 1)
    return spent


def _of_each(servers: Sequence[Server], case: Case | Sequence[Case]) -> Sequence[Case]:
    """The request of each server: the same, or in its own language."""
    return case if isinstance(case, Sequence) else [case] * len(servers)


def wait_until_idle(server: Server) -> None:
    """Work of the start that goes on after a server is ready is not the question's: other processes, compactions."""
    end = time.monotonic() + _IDLE_WITHIN_S
    while time.monotonic() < end:
        before_s = server.cpu_s()
        time.sleep(_IDLE_LOOK_S)
        if server.cpu_s() - before_s < _IDLE_SHARE * _IDLE_LOOK_S:
            return


def turn(server: Server, case: Case, spent: Spent, times: int) -> None:
    before_s = server.cpu_s()
    for _ in range(times):
        began = time.perf_counter()
        server.ask(case.path, case.fields)
        spent.walls_ms.append((time.perf_counter() - began) * 1e3)
    spent.cpus_ms.append((server.cpu_s() - before_s) / times * 1e3)
