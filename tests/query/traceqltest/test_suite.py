"""A slice of the recorded answers, asked of a real lake over HTTP. `make traceqltest` asks all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lakerunner.model.signals.traces import TRACES
from tests.components.missing import missing
from tests.query.served_lake import served_lake
from tests.query.traceqltest.__main__ import difference
from tests.query.traceqltest.suite import VARIABLE, Suite, cases_of, differences, find_suite, recent_t0

#: Every so manieth case of a search or metrics query is asked.
SLICE = 15
_KINDS = ("search", "search_limit", "metrics_range", "metrics_instant")


def _slice() -> list[dict[str, Any]]:
    suite = find_suite()
    if suite is None:
        return []
    excused = differences()
    cases = [case for path in suite.topics() for case in cases_of(path) if case["kind"] in _KINDS]
    return [case for case in cases[::SLICE] if case["id"] not in excused]


def test_the_suite_is_there() -> None:
    if find_suite() is None:
        message = f"the recorded TraceQL answers are not there: set {VARIABLE} to their folder"
        missing(message)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Suite, str, int]]:
    suite = find_suite()
    assert suite is not None
    t0_s = recent_t0()
    with served_lake(suite.requests(t0_s), TRACES, items=3) as url:
        yield suite, url, t0_s


@pytest.mark.skipif(find_suite() is None, reason="the recorded TraceQL answers are not there")
def test_recorded_answers(served: tuple[Suite, str, int]) -> None:
    suite, url, t0_s = served
    failed = [(case["id"], found) for case in _slice() if (found := difference(suite, url, case, t0_s)) is not None]
    assert not failed


@pytest.mark.skipif(find_suite() is None, reason="the recorded TraceQL answers are not there")
def test_a_search_as_events(served: tuple[Suite, str, int]) -> None:
    _, url, t0_s = served
    asked = {"q": "{ status = error }", "s": t0_s * 1000, "e": (t0_s + 1200) * 1000, "limit": 30}
    frames = []
    with httpx.stream("POST", f"{url}/api/v1/spans/query", json=asked, timeout=60) as response:
        assert response.status_code == 200
        frames = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
    traces = [frame["data"] for frame in frames if frame["type"] == "result"]
    starts = [int(trace["startTimeUnixNano"]) for trace in traces]
    assert len(traces) == 30 and starts == sorted(starts, reverse=True)
    assert frames[-1] == {"type": "done", "data": {"status": "ok"}}
    assert [frame["data"]["complete"] for frame in frames if frame["type"] == "summary"] == [True]
    refused = httpx.post(f"{url}/api/v1/spans/query", json={"q": "{ span.x = }"}, timeout=60)
    assert refused.status_code == 400
