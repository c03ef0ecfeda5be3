"""Wall and CPU time of a question to each server, taking turns, so that all meet the same neighbours."""

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

#: Short questions are asked again and again for this long: one of them is lost in the noise of the CPU's clock.
_TURN_S, _MAX_REPEATS = 0.2, 40
#: A server is idle that takes less than this share of a core for so long.
_IDLE_SHARE, _IDLE_LOOK_S, _IDLE_WITHIN_S = 0.1, 1.0, 30.0


@dataclass(slots=True)
class Spent:
    """Of every call its wall time, of every turn the CPU time of a call."""

    walls_ms: list[float] = field(default_factory=list)
    cpus_ms: list[float] = field(default_factory=list)

    @property
    def wall_ms(self) -> float:
        return statistics.median(self.walls_ms)

    @property
    def cpu_ms(self) -> float:
        return statistics.median(self.cpus_ms)


def hot(servers: Sequence[Server], case: Case, rounds: int) -> list[Spent]:
    """Every server was asked the question before, once here again to see how often to repeat it."""
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
    """The first question after a start, with nothing in any cache but the operating system's."""
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
    """Medians, and what the stream says of itself at its end."""

    first_ms: float
    whole_ms: float
    #: The same question to `query_range`, in turn with the stream.
    at_once_ms: float
    summary: dict[str, Any]


def stream(lake: Lake, query: str, hours: int, step_s: int, rounds: int) -> Streamed:
    """When the first point of a stream arrives, when its last, and when an answer that is not streamed."""
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
