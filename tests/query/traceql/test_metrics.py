"""Metrics equal brute force over spans that are each there once, however often and wherever they are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.traceql.labels import decoded_label
from lakerunner.query.traceql.language import compiled
from lakerunner.query.traceql.metrics import MetricRun, Window
from lakerunner.query.traceql.repeats import Seen, suspects
from lakerunner.query.traceql.sampling import adjusted_counts
from tests.examples import examples
from tests.query.traceql.small_lake import NOW_NS, Segments, Span, lakes, once

_STEP_NS = 20_000_000
_STEPS = 3

Answer = dict[tuple[Any, ...], dict[int, float]]
_FILTERS: dict[str, Callable[[Span, Sequence[Span]], bool]] = {
    "{ }": lambda span, _: True,
    '{ name = "a" }': lambda span, _: span["name"] == "a",
    "{ span.x >= 1 || kind = client }": lambda span, _: (span["x"] or 0) >= 1 or span["kind"] == "client",
    '{ name = "a" } > { }': lambda span, spans: any(
        other["trace"] == span["trace"] and other["id"] == span["parent"] and other["name"] == "a" for other in spans
    ),
    "{ } | count() > 3": lambda span, spans: sum(other["trace"] == span["trace"] for other in spans) > 3,
}
_GROUPS: dict[str, Callable[[Span], tuple[Any, ...]]] = {
    "": lambda span: (),
    " by (name)": lambda span: (span["name"],),
    " by (span.x, kind)": lambda span: (span["kind"], span["x"]),
}
_FUNCTIONS: dict[str, Callable[[list[Span]], float | None]] = {
    "rate()": lambda spans: len(spans) / (_STEP_NS / 1e9),
    "count_over_time()": len,
    "sum_over_time(span.x)": lambda spans: sum(_xs(spans)) if _xs(spans) else None,
    "avg_over_time(span.x)": lambda spans: sum(_xs(spans)) / len(_xs(spans)) if _xs(spans) else None,
    "min_over_time(span.x)": lambda spans: min(_xs(spans), default=None),
    "max_over_time(duration)": lambda spans: max((span["duration"] for span in spans), default=0) / 1e9,
}


def _xs(spans: list[Span]) -> list[float]:
    return [span["x"] for span in spans if span["x"] is not None]


def answer_of(text: str, parts: Sequence[Sequence[Span]]) -> Answer:
    """Values by the values of labels and by step; zeros left out."""
    steps = NOW_NS + np.arange(_STEPS, dtype=np.int64) * _STEP_NS
    run = MetricRun(Window(steps, _STEP_NS), Segments(parts), lambda: None, 100, 1_800 * 10**9)  # type: ignore[arg-type]
    root = compiled(text).root
    block = run.block(root)  # type: ignore[arg-type]
    found: Answer = {}
    for row, labels in enumerate(block.labels):
        values = (next(iter(decoded_label(value).values())) for _, value in labels.pairs)
        steps_of = {step: float(block.values[row, step]) for step in np.flatnonzero(block.valid[row]).tolist()}
        found[tuple(values)] = {step: value for step, value in steps_of.items() if value}
    return {key: steps for key, steps in found.items() if steps}


def brute_force(spans: Sequence[Span], filtered: str, group: str, function: str) -> Answer:
    cells: dict[tuple[Any, ...], dict[int, list[Span]]] = {}
    for span in spans:
        step = math.ceil(span["start"] / _STEP_NS)
        if step < _STEPS and _FILTERS[filtered](span, spans):
            key = tuple(value for value in _GROUPS[group](span) if value is not None)
            cells.setdefault(key, {}).setdefault(step, []).append(span)
    found = {key: {at: _FUNCTIONS[function](each) for at, each in steps.items()} for key, steps in cells.items()}
    kept = {key: {at: value for at, value in steps.items() if value} for key, steps in found.items()}
    return {key: steps for key, steps in kept.items() if steps}  # type: ignore[misc]


@settings(max_examples=examples(80), deadline=None)
@given(
    lakes(), st.sampled_from(sorted(_FILTERS)), st.sampled_from(sorted(_GROUPS)), st.sampled_from(sorted(_FUNCTIONS))
)
def test_metrics(parts: list[list[Span]], filtered: str, group: str, function: str) -> None:
    # Whole numbers and fractions are labels of two types.
    answer = {
        tuple(map(_number, key)): steps for key, steps in answer_of(f"{filtered} | {function}{group}", parts).items()
    }
    assert answer == brute_force(once(parts), filtered, group, function)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value.isdigit() else value


@settings(max_examples=examples(30), deadline=None)
@given(lakes())
def test_histograms_and_quantiles_count_each_span_once(parts: list[list[Span]]) -> None:
    spans = [once(parts)]
    for function in ("histogram_over_time(duration)", "quantile_over_time(duration, 0.5, 0.9)"):
        assert answer_of(f"{{ }} | {function}", parts) == answer_of(f"{{ }} | {function}", spans)


def _span(start: int, **more: Any) -> Span:
    plain = {"trace": "1", "id": "a" * 16, "parent": None, "start": start, "duration": 5, "name": "a", "kind": "client"}
    return {**plain, "x": 1.0, **more}


def test_a_client_and_a_server_that_share_an_id_are_two() -> None:
    parts = [[_span(0), _span(0, kind="server")], [_span(0)]]
    assert answer_of("{ } | count_over_time()", parts) == {(): {0: 2.0}}
    assert answer_of("{ } | count() > 1 | count_over_time()", parts) == {(): {0: 2.0}}


def test_spans_that_only_begin_and_last_alike_are_counted() -> None:
    parts = [[_span(0)], [_span(0, id="b" * 16)], [_span(0, trace="2")], [_span(0, id=None), _span(0, id=None)]]
    assert answer_of("{ } | count_over_time()", parts) == {(): {0: 5.0}}


def _seen(segment: int, starts: Sequence[int]) -> Seen:
    return Seen.of(segment, np.array(starts, np.int64), np.zeros(len(starts), np.int64))


def test_suspects_are_sought_among_overlapping_segments_and_neighbours() -> None:
    assert len(suspects([_seen(1, [1, 2, 3]), _seen(2, [4, 5]), _seen(1, [9])])) == 0
    assert len(suspects([_seen(1, [1, 5]), _seen(2, [3, 5, 9])])) == 1
    assert len(suspects([_seen(1, [1, 7, 7, 2])])) == 1
    assert len(suspects([_seen(1, [1, 7]), _seen(1, [7, 2])])) == 1
    assert len(suspects([])) == 0


def test_sampled_spans_stand_for_those_that_were_dropped() -> None:
    states = ["ot=th:8", "ot=th:c;p:8", "congo=1,ot=th:fffffffffffff8", "ot=p:8", "ot=th:g", "ot=th:", None]
    assert adjusted_counts(pa.array(states)).tolist() == [2.0, 4.0, 2.0**53, 1.0, 1.0, 1.0, 1.0]
