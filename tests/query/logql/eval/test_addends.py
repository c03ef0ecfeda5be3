"""Counts of disjoint entries add up to what all entries give, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.logql import ast
from lakerunner.query.logql.eval.addends import addends_of, summed
from lakerunner.query.logql.eval.evaluator import Evaluator, evaluate
from lakerunner.query.logql.parser import parse
from lakerunner.query.series.block import Block
from lakerunner.query.vectors.context import EngineOptions
from tests.query.logql.eval.memory_entries import Entry, MemoryEntries

_SECOND_NS = 10**9
_STEPS_NS = np.arange(1, 8, dtype=np.int64) * 10 * _SECOND_NS
_SPLIT = (
    'sum(count_over_time({a=~".+"}[10s]))',
    'sum by (b) (rate({a=~".+"}[7s]))',
    'sum by (a, b) (bytes_rate({a=~".+"} |= "x" [30s] offset 5s))',
    'topk(2, sum by (b) (rate({a=~".+"}[20s]))) / 3',
    'sum by (b) (rate({a="1"}[20s])) / on (b) sum by (b) (rate({a=~".+"}[20s]))',
    'count(sum by (b) (count_over_time({a=~".+"}[20s])) > 1) or vector(0)',
    'max(label_replace(sum by (b) (bytes_over_time({a=~".+"}[1m])), "c", "$1", "b", "(.).*"))',
)
_WHOLE = (
    'count_over_time({a="1"}[10s])',
    'sum without (b) (count_over_time({a="1"}[10s]))',
    'sum(sum_over_time({a="1"} | unwrap b [10s]))',
    'avg by (b) (rate({a="1"}[10s]))',
    'sum by (b) (absent_over_time({a="1"}[10s]))',
    'sum(rate({a="1"}[10s])) + max by (a) (max_over_time({a="1"} | unwrap b [10s]))',
    "vector(1)",
)
_entries = st.builds(
    Entry,
    st.integers(0, 80 * _SECOND_NS),
    st.fixed_dictionaries({"a": st.sampled_from("12")}, optional={"b": st.sampled_from("pqr")}),
    st.sampled_from(["x", "", "a longer line with x", "ü"]),
)


def _metric(text: str) -> ast.MetricExpr:
    expr = parse(text)
    assert not isinstance(expr, ast.LogSelector)
    return expr


def _value(expr: ast.MetricExpr, entries: list[Entry]) -> Block:
    return evaluate(expr, _STEPS_NS, MemoryEntries(entries), lambda: None, EngineOptions())


def _cells(block: Block) -> dict[tuple[tuple[tuple[str, str], ...], int], bytes]:
    rows, steps = np.nonzero(block.valid)
    found = zip(rows.tolist(), steps.tolist(), strict=True)
    return {(block.labels[row].pairs, step): block.values[row, step].tobytes() for row, step in found}


@pytest.mark.parametrize("text", _SPLIT)
@settings(max_examples=25)
@given(entries=st.lists(_entries, max_size=60), cuts=st.tuples(st.integers(0, 60), st.integers(0, 60)))
def test_sums_of_counts_give_the_value(text: str, entries: list[Entry], cuts: tuple[int, int]) -> None:
    expr = _metric(text)
    found = addends_of(expr)
    assert found is not None
    low, high = sorted(cuts)
    parts = [entries[:low], entries[low:high], entries[high:]]
    sums = [summed([_value(count, part) for part in parts], len(_STEPS_NS)) for count in found.counts]
    evaluator = Evaluator(MemoryEntries([]), lambda: None, EngineOptions(), sums)
    assert _cells(evaluator.block(found.whole, _STEPS_NS)) == _cells(_value(expr, entries))


@pytest.mark.parametrize("text", _WHOLE)
def test_other_queries_are_not_split(text: str) -> None:
    assert addends_of(_metric(text)) is None
