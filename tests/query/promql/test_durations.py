"""Durations: literals, and the expressions that stand for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.query.promql.ast import MatrixSelector
from lakerunner.query.promql.durations import (
    QueryTimes,
    duration_ms,
    positive_duration_ms,
)
from lakerunner.query.promql.parser import parse
from lakerunner.query.syntax.durations import format_duration_ms, parse_duration_ms

QUERY = QueryTimes(start_ms=0, end_ms=600_000, step_ms=15_000)


@given(st.integers(0, 9 * 10**12))
def test_literals_round_trip(value_ms: int) -> None:
    assert parse_duration_ms(format_duration_ms(value_ms)) == value_ms


def _range(text: str) -> int:
    expr = parse(f"x[{text}]")
    assert isinstance(expr, MatrixSelector)
    return positive_duration_ms(expr.range, QUERY)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("5m", 300_000),
        ("90", 90_000),
        ("1h / 2", 1_800_000),
        ("2m * (10 + 5)", 1_800_000),
        ("1h30m % 1h", 1_800_000),
        ("step() + 1", 16_000),
        ("range()", 600_000),
        ("max_of(step(), 1m)", 60_000),
        ("-5m + 10m", 300_000),
        ("2 ^ 3 ^ 2", 512_000),
        ("-(2 ^ 2) + 5", 1_000),
    ],
)
def test_expressions(text: str, expected_ms: int) -> None:
    assert _range(text) == expected_ms


@pytest.mark.parametrize("text", ["0s", "-5m", "1m - 1m", "5m / 0", "5m % 0", "10 ^ 400"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        _range(text)


def test_offsets_may_be_negative() -> None:
    expr = parse("x offset -(step() * 2)")
    assert duration_ms(expr.offset, QUERY) == -30_000  # type: ignore[union-attr, arg-type]
