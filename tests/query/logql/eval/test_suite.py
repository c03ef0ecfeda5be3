"""Metric queries of the conformance suite, evaluated over its records in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from lakerunner.model.errors import BadInput
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Entries, Ints, Mask
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.logql.eval.facts import Kind, kind_of
from lakerunner.query.logql.eval.source import EntryRequest
from lakerunner.query.logql.needed import stored_names
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.stages.compile import compile_stages
from lakerunner.query.series.block import Block
from lakerunner.query.series.matchers import Matcher, accepting
from lakerunner.query.vectors.context import EngineOptions
from tests.query.logql.stages.suite_entries import suite_entries
from tests.query.logqltest.compare import data_difference
from tests.query.logqltest.suite import Case, cases_of, find_suite

_SUITE = find_suite()
_TOPICS = (
    "binary_ops",
    "error_semantics",
    "generated",
    "label_replace",
    "metric_range",
    "offset",
    "quantile",
    "range_aggregations",
    "topk_sort",
    "unwrap",
    "vector_aggregations",
    "vector_fn",
)
#: A label that the entries of this test do not have.
_LEVEL = "detected_level"
_NS_PER_S = 1_000_000_000


@pytest.mark.parametrize("topic", _TOPICS if _SUITE else ())
def test_metric_queries_answer_as_recorded(topic: str) -> None:
    assert _SUITE is not None
    cases = [case for case in cases_of(_SUITE.folder / f"{topic}.jsonl") if _is_metric(case)]
    assert cases
    wrong = [f"{case.case_id} {case.shown()}: {reason}" for case in cases if (reason := _difference(case))]
    assert not wrong, "\n".join(wrong)


def _is_metric(case: Case) -> bool:
    if case.is_quirk or _LEVEL in case.shown():
        return False
    try:
        return not isinstance(parse(case.shown()), ast.LogSelector)
    except BadInput:
        return False


def _difference(case: Case) -> str | None:
    expr = parse(case.shown())
    assert not isinstance(expr, ast.LogSelector)
    steps, refused = _steps(case), "error" in case.recorded
    try:
        block = evaluate(expr, steps, _SuiteEntries(), lambda: None, EngineOptions())
    except BadInput as reason:
        return None if refused else f"refused: {reason}"
    if refused:
        return "not refused"
    expected = copy.deepcopy(case.recorded["expect"])
    if expected["resultType"] != "scalar":
        for series in expected["result"]:
            series["metric"].pop(_LEVEL, None)
    answer = _answer(block, steps, kind_of(expr), instant=case.recorded["kind"] == "instant")
    return data_difference(case, expected, answer, case.recorded.get("tolerance", 1e-9))


def _steps(case: Case) -> Ints:
    if case.recorded["kind"] == "instant":
        return np.array([int(case.params["time"])])
    return np.arange(
        int(case.params["start"]), int(case.params["end"]) + 1, int(float(case.params["step"]) * _NS_PER_S)
    )


def _answer(block: Block, steps: Ints, kind: Kind, *, instant: bool) -> dict[str, Any]:
    if instant and kind is Kind.SCALAR:
        return {"resultType": "scalar", "result": [0, repr(float(block.values[0, 0]))]}
    times, result = (steps / _NS_PER_S).tolist(), []
    for row, labels in enumerate(block.labels):
        cells = np.flatnonzero(block.valid[row]).tolist()
        values = [[times[step], repr(float(block.values[row, step]))] for step in cells]
        result.append({"metric": dict(labels), **({"value": values[0]} if instant else {"values": values})})
    return {"resultType": "vector" if instant else "matrix", "result": result}


class _SuiteEntries:
    def entries(self, request: EntryRequest) -> Iterator[Entries]:
        assert _SUITE is not None
        every, stages = suite_entries(_SUITE), request.selector.stages
        run = compile_stages(stages, stored_names(stages, request.names))
        chosen = (every.times_ns >= request.start_ns) & (every.times_ns < request.end_ns)
        for matcher in request.selector.matchers:
            chosen &= _accepted(matcher)
        yield run(every.filtered(chosen), lambda: None)


@lru_cache(maxsize=256)
def _accepted(matcher: Matcher) -> Mask:
    assert _SUITE is not None
    entries = suite_entries(_SUITE)
    values, accepts = entries.label(matcher.name), accepting([matcher], lambda: None)
    texts = [None] * len(entries) if values is None else values.to_pylist()
    return np.array([accepts(text or "") for text in texts])
