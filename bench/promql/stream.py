"""Measure the stream of a query: its first point, its last, and the same query answered at once."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.promql.cases import Case, range_fields
from bench.promql.sets import END_MS, HOUR_MS
from bench.served.measure import Spent, turn
from bench.served.server import Lake, Refused


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
        turn(lake, case, at_once, 1)
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
