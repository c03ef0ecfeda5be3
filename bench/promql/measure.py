"""Measure wall and CPU time of a query on each server. Servers take turns, so that other load affects all equally."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.promql.cases import Case, range_fields
from bench.promql.servers import Lake, Refused, Server
from bench.promql.sets import END_MS, HOUR_MS

#: Short queries are repeated for this long per turn: a single one is below the resolution of the CPU clock.
_TURN_S, _MAX_REPEATS = 0.2, 40
#: A server is idle that takes less than this share of a core for so long.
_IDLE_SHARE, _IDLE_LOOK_S, _IDLE_WITHIN_S = 0.1, 1.0, 30.0


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


def hot(servers: Sequence[Server], case: Case, rounds: int) -> list[Spent]:
    """Measure a warm query. One more call here determines how often a turn repeats it."""
    spent = [Spent() for _ in servers]
    repeats = []
    for server in servers:
        began = time.perf_counter()
        server.ask(case.path, case.fields)
        taken_s = time.perf_counter() - began
        repeats.append(min(_MAX_REPEATS, max(1, math.ceil(_TURN_S / taken_s))))
    for _ in range(rounds):
        for server, so_far, times in zip(servers, spent, repeats, strict=True):
            _turn(server, case, so_far, times)
    return spent


def cold(servers: Sequence[Server], case: Case, rounds: int) -> list[Spent]:
    """Measure the first query after a restart, with only the operating system's cache warm."""
    spent = [Spent() for _ in servers]
    for _ in range(rounds):
        for server, so_far in zip(servers, spent, strict=True):
            server.stop()
            server.forget()
            server.start()
            _wait_until_idle(server)
            _turn(server, case, so_far, 1)
    return spent


def _wait_until_idle(server: Server) -> None:
    """Work of the start that goes on after a server is ready is not the question's: other processes, compactions."""
    end = time.monotonic() + _IDLE_WITHIN_S
    while time.monotonic() < end:
        before_s = server.cpu_s()
        time.sleep(_IDLE_LOOK_S)
        if server.cpu_s() - before_s < _IDLE_SHARE * _IDLE_LOOK_S:
            return


def _turn(server: Server, case: Case, spent: Spent, times: int) -> None:
    before_s = server.cpu_s()
    for _ in range(times):
        began = time.perf_counter()
        server.ask(case.path, case.fields)
        spent.walls_ms.append((time.perf_counter() - began) * 1e3)
    spent.cpus_ms.append((server.cpu_s() - before_s) / times * 1e3)


@dataclass(frozen=True, slots=True)
class Streamed:
    """Median times of a stream, and its summary frame."""

    first_ms: float
    whole_ms: float
    #: The same query as `query_range`, alternating with the stream.
    at_once_ms: float
    summary: dict[str, Any]


def stream(lake: Lake, query: str, hours: int, step_s: int, rounds: int) -> Streamed:
    """Measure the time to the first and last point of a stream, and to the full answer of `query_range`."""
    body = json.dumps(
        {"q": query, "s": END_MS - hours * HOUR_MS, "e": END_MS, "step": f"{step_s}s", "nocache": True}
    ).encode()
    case = range_case("at once", query, hours, step_s)
    lake.ask(case.path, case.fields)
    firsts, wholes, at_once = [], [], Spent()
    summary: dict[str, Any] = {}
    for _ in range(rounds):
        began = time.perf_counter()
        first_s = None
        for frame in _frames(lake, body):
            if frame["type"] == "result" and first_s is None:
                first_s = time.perf_counter() - began
            elif frame["type"] == "summary":
                summary = frame["data"]
        if first_s is None or not summary:
            raise Refused(f"the stream of {query} ended without a result")
        firsts.append(first_s * 1e3)
        wholes.append((time.perf_counter() - began) * 1e3)
        _turn(lake, case, at_once, 1)
    return Streamed(statistics.median(firsts), statistics.median(wholes), at_once.wall_ms, summary)


def _frames(lake: Lake, body: bytes) -> Iterator[dict[str, Any]]:
    response = lake.send("POST", "/api/v1/metrics/query", body, {"Content-Type": "application/json"})
    if response.status != 200:
        raise Refused(f"the stream is refused with {response.status}: {response.read()[:500].decode()}")
    while line := response.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def range_case(name: str, query: str, hours: int, step_s: int) -> Case:
    return Case(name, "/api/v1/query_range", range_fields(query, hours, step_s))
