"""What metric queries read: labels, lines, times."""

from __future__ import annotations

import numpy as np
import pytest

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.logql.eval.facts import Kind, is_sorted, is_splittable, kind_of, leaves
from lakerunner.query.logql.parser import parse
from lakerunner.query.vectors.context import EngineOptions
from tests.query.logql.eval.memory_entries import MemoryEntries

_MINUTE_NS = 60_000_000_000


def metric(text: str) -> ast.MetricExpr:
    expr = parse(text)
    assert not isinstance(expr, ast.LogSelector)
    return expr


@pytest.mark.parametrize(
    ("text", "names", "lines"),
    [
        ("sum(count_over_time({a='b'}[1m]))", set(), False),
        ("sum by (level) (count_over_time({a='b'}[1m]))", {"level"}, False),
        ("sum by (level) (bytes_rate({a='b'}[1m]))", {"level"}, True),
        ("sum by (x) (sum_over_time({a='b'} | unwrap v [1m]))", {"x", "v"}, False),
        ("max_over_time({a='b'} | unwrap v | y > 1 [1m]) by (x)", {"x", "v", "y"}, False),
        ("max by (x) (max_over_time({a='b'} | unwrap v [1m]))", {"x", "v", ERROR}, False),
        ("absent_over_time({a='b'}[1m])", set(), False),
        ("count(avg by (x) (bytes_rate({a='b'}[1m])))", {"x", ERROR}, False),
        # All labels tell series apart.
        ("count_over_time({a='b'}[1m])", None, False),
        ("avg by (level) (count_over_time({a='b'}[1m]))", None, False),
        ("sum without (level) (count_over_time({a='b'}[1m]))", None, False),
        ("sum by (x) (avg_over_time({a='b'} | unwrap v [1m]))", None, False),
        ("sum by (x) (rate({a='b'}[1m]) > 1)", None, False),
    ],
)
def test_only_needed_labels_are_read(text: str, names: set[str] | None, lines: bool) -> None:
    source = MemoryEntries([])
    evaluate(metric(text.replace("'", '"')), np.array([0]), source, lambda: None, EngineOptions())
    expected = None if names is None else frozenset(names)
    assert source.asked == [(expected, lines)]


def test_leaves_span_all_windows() -> None:
    expr = metric('sum(rate({a="b"}[5m])) / sum(rate({a="c"}[1m] offset 1h)) + 1')
    found = leaves(expr, np.array([100, 101, 102]) * _MINUTE_NS)
    assert [(selector.matchers[0].value, leaf.start_ns - 1, leaf.end_ns - 1) for selector, leaf in found] == [
        ("b", 95 * _MINUTE_NS, 102 * _MINUTE_NS),
        ("c", 39 * _MINUTE_NS, 42 * _MINUTE_NS),
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", Kind.SCALAR),
        ("1 + 2 * 3 > 4", Kind.SCALAR),
        ("vector(1)", Kind.VECTOR),
        ("1 + vector(1)", Kind.VECTOR),
        ('rate({a="b"}[1m]) * 2', Kind.VECTOR),
    ],
)
def test_kinds(text: str, kind: Kind) -> None:
    assert kind_of(metric(text)) is kind


def test_order_and_cuts() -> None:
    assert is_sorted(metric('sort(rate({a="b"}[1m])) > 1'))
    assert not is_sorted(metric('topk(1, rate({a="b"}[1m]))'))
    assert is_splittable(metric('topk(1, rate({a="b"}[1m])) or vector(1)'))
    assert not is_splittable(metric('label_replace(rate({a="b"}[1m]), "x", "y", "z", "")'))


def test_long_chains_of_operators_do_not_nest() -> None:
    expr: ast.MetricExpr = ast.VectorLiteral(1.0)
    for _ in range(2999):
        expr = ast.Binary("+", expr, ast.VectorLiteral(1.0))
    assert kind_of(expr) is Kind.VECTOR
    assert is_splittable(expr)
    block = evaluate(expr, np.array([0]), MemoryEntries([]), lambda: None, EngineOptions())
    assert block.values.tolist() == [[3000.0]]
