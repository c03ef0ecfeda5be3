"""Random TraceQL over the traces of a suite, to us and to brute force."""

from __future__ import annotations

import json
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lakerunner.model.signals.traces import TRACES
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import compiled
from tests.differential.tally import Tally
from tests.differential.traceql import naive
from tests.differential.traceql.grammar import Grammar
from tests.differential.traceql.traces import Trace, traces_of
from tests.query.served_lake import served_lake
from tests.query.traceqltest.suite import Suite, recent_t0

_STEP_S, _LENGTH_S = 60, 1200
_TOLERANCE = 1e-9


def run(count: int, seed: int | None, only: int | None, suite: Path | None) -> int:
    """Ask random searches and metrics of a lake that has the traces of a suite."""
    if suite is None:
        sys.stderr.write("cannot compare: name the folder of a suite with --suite\n")
        return 2
    seed = seed if seed is not None else time.time_ns() % 1_000_000
    t0_s = recent_t0()
    requests = Suite(suite).requests(t0_s)
    # Names of spans may hold anything.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with served_lake(requests, TRACES, items=3) as url:
        return compare(url, traces_of(requests), t0_s, seed, range(count) if only is None else [only])


def compare(url: str, traces: Sequence[Trace], t0_s: int, seed: int, numbers: Sequence[int]) -> int:
    grammar, tally = Grammar(traces), Tally(seed)
    for number in numbers:
        chance = random.Random(f"{seed}/{number}")
        is_metric = chance.random() < 0.3
        text = grammar.metric(chance) if is_metric else grammar.search(chance)
        kind, reason = (_metric if is_metric else _search)(url, text, traces, t0_s)
        tally.add(number, kind, f"{text}\n    {reason}" if reason else None)
    return tally.finish(f"{len(traces):,} traces")


def _search(url: str, text: str, traces: Sequence[Trace], t0_s: int) -> tuple[str, str | None]:
    params = {"q": text, "start": t0_s, "end": t0_s + _LENGTH_S, "limit": 5000, "spss": 5000}
    status, answer = _asked(f"{url}/api/search", params)
    try:
        root = compiled(text).root
        assert isinstance(root, ast.Pipeline)
        wanted = naive.search(root, traces)
    except naive.WholeDivisionByZero:
        return "refused", None if status // 100 == 4 else f"expected a refusal, got {status}"
    if status != 200:
        return "answered", f"got {status}: {str(answer)[:300]}"
    found = {
        trace["traceID"].rjust(32, "0"): sorted(
            sorted(span["spanID"] for span in one["spans"]) for one in trace["spanSets"]
        )
        for trace in answer["traces"]
    }
    if found == wanted:
        return "answered" if wanted else "empty", None
    unlike = sorted(trace for trace in {*found, *wanted} if found.get(trace) != wanted.get(trace))
    first = f"trace {unlike[0]}: expected {wanted.get(unlike[0])}, got {found.get(unlike[0])}"
    return "answered", f"{len(unlike)} of {len(wanted)} traces differ; {first[:600]}"


def _metric(url: str, text: str, traces: Sequence[Trace], t0_s: int) -> tuple[str, str | None]:
    params = {"q": text, "start": t0_s, "end": t0_s + _LENGTH_S, "step": _STEP_S, "exemplars": 0}
    status, answer = _asked(f"{url}/api/metrics/query_range", params)
    root = compiled(text).root
    assert isinstance(root, ast.Metric) and isinstance(root.aggregate, ast.MetricAggregate)
    try:
        wanted = naive.metric(root, traces, t0_s, t0_s + _LENGTH_S, _STEP_S)
    except naive.WholeDivisionByZero:
        return "refused", None if status // 100 == 4 else f"expected a refusal, got {status}"
    if status != 200:
        return "answered", f"got {status}: {str(answer)[:300]}"
    keep_zeros = bool(root.then)
    expected = {_key(labels): _points(points, keep_zeros) for labels, points in wanted.items()}
    received: dict[tuple[str, ...], dict[int, float]] = {}
    for series in answer["series"]:
        values = [label.get("value", {}) for label in series["labels"] if label["key"] != "__name__"]
        shown = sorted(text for value in values for kind, found in value.items() if (text := _shown(kind, found)))
        points = {int(each["timestampMs"]) // 1000: float(each.get("value", 0)) for each in series["samples"]}
        received[tuple(shown)] = _points(points, keep_zeros)
    expected, received = (_nonempty(side) for side in (expected, received))
    if expected.keys() != received.keys():
        missing, more = sorted(expected.keys() - received.keys()), sorted(received.keys() - expected.keys())
        return "answered", f"expected {len(expected)} series; missing {missing[:3]}, unexpected {more[:3]}"
    for key, points in expected.items():
        if points.keys() != received[key].keys() or any(
            abs(received[key][at] - value) > _TOLERANCE * max(1.0, abs(value)) for at, value in points.items()
        ):
            return "answered", f"{key}: expected {points}, got {received[key]}"[:800]
    return "answered" if expected else "empty", None


def _points(points: dict[int, float], keep_zeros: bool) -> dict[int, float]:
    """Without points that are nothing: whether 0 and NaN are told is no difference."""
    return {at: value for at, value in points.items() if value == value and (value or keep_zeros)}


def _nonempty(series: dict[tuple[str, ...], dict[int, float]]) -> dict[tuple[str, ...], dict[int, float]]:
    return {key: points for key, points in series.items() if points}


def _key(labels: Sequence[Any]) -> tuple[str, ...]:
    """Values of labels; nil is as good as no label."""
    names = {ast.STRING: "stringValue", ast.INT: "intValue", ast.FLOAT: "doubleValue", ast.BOOL: "boolValue"}
    return tuple(
        sorted(
            text
            for kind, value in labels
            if kind != ast.NIL and (text := _shown(names.get(kind, "stringValue"), value))
        )
    )


def _shown(kind: str, value: Any) -> str:
    if kind == "stringValue" and value == "nil":
        return ""
    return f"{kind}:{float(value)!r}" if kind in ("intValue", "doubleValue") else f"{kind}:{value}"


def _asked(url: str, params: dict[str, Any]) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{url}?{urlencode(params)}", timeout=120) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
