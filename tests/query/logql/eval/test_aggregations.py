"""Range aggregations of random entries equal those computed entry by entry."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import LimitHit
from lakerunner.query.logql import ast
from lakerunner.query.logql.eval import aggregations
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.logql.parser import parse
from lakerunner.query.series.block import Block
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.vectors.context import EngineOptions
from tests.query.logql.eval.memory_entries import Entry, MemoryEntries
from tests.query.logql.eval.reference import Cells, range_aggregated, summed

_EVERYTHING = ast.LogSelector((Matcher("app", MatchKind.REGEX, ".*"),))
_OF_LINES = ("count_over_time", "rate", "bytes_over_time", "bytes_rate")
_OF_VALUES = ("rate", "sum_over_time", "avg_over_time", "min_over_time", "max_over_time", "stdvar_over_time")
_GROUPED = ("avg_over_time", "min_over_time", "max_over_time", "stddev_over_time", "quantile_over_time")
_NAMES = ("app", "pod", "level")

_labels = st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(["x", "y", "ü"]))
_entries = st.lists(
    st.builds(
        lambda at, labels, value, line: Entry(at, labels | value, line),
        st.integers(0, 60),
        _labels,
        st.sampled_from([{}, {"v": "1"}, {"v": "2.5"}, {"v": "-3"}]),
        st.sampled_from(["", "line", "größe"]),
    ),
    # Two entries of one instant have no order that the lake would keep.
    unique_by=lambda entry: entry.time_ns,
    max_size=40,
)
_groupings = st.builds(ast.Grouping, st.lists(st.sampled_from(_NAMES), unique=True).map(tuple), st.booleans())
_steps = st.builds(
    lambda start, step, count: [start + step * k for k in range(count)],
    st.integers(-5, 30),
    st.integers(1, 20),
    st.integers(1, 6),
)
_ranges = st.tuples(st.integers(1, 30), st.integers(-10, 10))


def cells_of(block: Block) -> Cells:
    rows = zip(block.labels, block.values.tolist(), block.valid.tolist(), strict=True)
    return {
        labels.pairs: [value if there else None for value, there in zip(values, valid, strict=True)]
        for labels, values, valid in rows
    }


def evaluated(expr: ast.MetricExpr, entries: list[Entry], steps: list[int]) -> Cells:
    return cells_of(evaluate(expr, np.array(steps), MemoryEntries(entries), lambda: None, EngineOptions()))


def assert_same(found: Cells, expected: Cells) -> None:
    assert found.keys() == expected.keys()
    for labels, cells in expected.items():
        assert [cell is None for cell in found[labels]] == [cell is None for cell in cells]
        there = [cell for cell in cells if cell is not None]
        assert [cell for cell in found[labels] if cell is not None] == pytest.approx(there, rel=1e-9, abs=1e-9)


@given(_entries, _steps, _ranges, st.sampled_from(_OF_LINES))
def test_counting_entries(entries: list[Entry], steps: list[int], extent: tuple[int, int], op: str) -> None:
    node = ast.RangeAggregate(op, ast.LogRange(_EVERYTHING, *extent))
    assert_same(evaluated(node, entries, steps), range_aggregated(node, entries, steps))


@given(_entries, _steps, _ranges, st.sampled_from((*_OF_VALUES, "first_over_time", "last_over_time")))
def test_unwrapped_values(entries: list[Entry], steps: list[int], extent: tuple[int, int], op: str) -> None:
    node = ast.RangeAggregate(op, ast.LogRange(_EVERYTHING, *extent, unwrap=ast.Unwrap("v")))
    assert_same(evaluated(node, entries, steps), range_aggregated(node, entries, steps))


@given(_entries, _steps, _ranges, st.sampled_from(["rate", "sum_over_time"]))
def test_sums_of_kept_values(entries: list[Entry], steps: list[int], extent: tuple[int, int], op: str) -> None:
    node = ast.RangeAggregate(op, ast.LogRange(_EVERYTHING, *extent, unwrap=ast.Unwrap("v")))
    with patch.object(aggregations, "_FEW_INTERVALS", 0):
        assert_same(evaluated(node, entries, steps), range_aggregated(node, entries, steps))


@given(_entries, _steps, _ranges, st.sampled_from(_GROUPED), _groupings)
def test_groups_of_entries(
    entries: list[Entry], steps: list[int], extent: tuple[int, int], op: str, grouping: ast.Grouping
) -> None:
    param = 0.3 if op == "quantile_over_time" else None
    node = ast.RangeAggregate(op, ast.LogRange(_EVERYTHING, *extent, unwrap=ast.Unwrap("v")), param, grouping)
    assert_same(evaluated(node, entries, steps), range_aggregated(node, entries, steps))


@given(_entries, _steps, _ranges, st.sampled_from(_OF_LINES), st.lists(st.sampled_from(_NAMES), unique=True))
def test_a_sum_while_counting_equals_a_sum_of_counts(
    entries: list[Entry], steps: list[int], extent: tuple[int, int], op: str, by: list[str]
) -> None:
    node = ast.RangeAggregate(op, ast.LogRange(_EVERYTHING, *extent))
    total = ast.VectorAggregate("sum", node, grouping=ast.Grouping(tuple(by)))
    assert_same(evaluated(total, entries, steps), summed(range_aggregated(node, entries, steps), by, len(steps)))


@given(_entries, _steps, _ranges, _groupings, st.sampled_from(["max", "min"]))
def test_an_extreme_while_reading_equals_the_extreme_of_series(
    entries: list[Entry], steps: list[int], extent: tuple[int, int], grouping: ast.Grouping, op: str
) -> None:
    log_range = ast.LogRange(_EVERYTHING, *extent, unwrap=ast.Unwrap("v"))
    node = ast.RangeAggregate(f"{op}_over_time", log_range)
    absorbed = ast.VectorAggregate(op, node, grouping=grouping)
    # Adding nothing keeps the values, but also keeps the range aggregation from doing the grouping.
    apart = ast.VectorAggregate(op, ast.Binary("+", node, ast.Number(0.0)), grouping=grouping)
    assert_same(evaluated(absorbed, entries, steps), evaluated(apart, entries, steps))


def metric(text: str) -> ast.MetricExpr:
    expr = parse(text)
    assert not isinstance(expr, ast.LogSelector)
    return expr


@pytest.mark.parametrize(
    ("limits", "name"),
    [(EngineOptions(max_series=10), "api.max_series"), (EngineOptions(max_samples=100), "api.max_samples")],
)
@pytest.mark.parametrize(
    "query",
    ['count_over_time({app="a"}[1m])', 'sum_over_time({app="a"} | unwrap n [1m])', 'max by (n) (rate({app="a"}[1m]))'],
)
def test_too_many_series_are_refused_by_the_name_of_the_limit(query: str, limits: EngineOptions, name: str) -> None:
    entries = [Entry(at, {"app": "a", "n": str(at), "id": str(at)}) for at in range(1, 200)]
    with pytest.raises(LimitHit, match=name):
        evaluate(metric(query), np.array([200]), MemoryEntries(entries), lambda: None, limits)


def test_a_repeated_range_aggregation_is_read_once() -> None:
    source = MemoryEntries([Entry(5, {"app": "a"})])
    text = 'sum(rate({app="a"}[1m])) / sum(rate({app="a"}[1m]))'
    found = cells_of(evaluate(metric(text), np.array([10]), source, lambda: None, EngineOptions()))
    assert found == {(): [1.0]}
    assert len(source.asked) == 1


def test_times_at_the_end_of_64_bits_do_not_overflow() -> None:
    entry = Entry(5, {"app": "a"})
    steps = [10, 2**62, 2**63 - 1]
    log_range = ast.LogRange(_EVERYTHING, 2**62, 0)
    assert evaluated(ast.RangeAggregate("count_over_time", log_range), [entry], steps) == {
        (("app", "a"),): [1.0, 1.0, 1.0]
    }


def test_evaluation_stops_when_the_answer_is_not_wanted() -> None:
    class Gone(Exception): ...

    def check() -> None:
        raise Gone

    with pytest.raises(Gone):
        evaluate(metric("1"), np.array([1]), MemoryEntries([]), check, EngineOptions())
