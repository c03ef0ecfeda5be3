"""Times and limits of requests, as Loki reads them."""

from __future__ import annotations

import time

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.serve.loki.times import (
    Bounds,
    check_entries,
    parse_time_ns,
    read_bounds,
    read_few_steps_ms,
    read_limit,
    read_newest_first,
    read_step_ms,
)
from lakerunner.serve.params import Params

S = 1_000_000_000


def params(**values: str) -> Params:
    return Params({name: [value] for name, value in values.items()})


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("0", 0),
        ("-5", -5 * S),
        ("1793527200", 1_793_527_200 * S),
        ("1793527200000000001", 1_793_527_200_000_000_001),
        ("1793527200.75", 1_793_527_200_750_000_000),
        ("1793527200.", 1_793_527_200 * S),
        ("1.7935272005e9", 1_793_527_200_500_000_000),
        ("2026-11-01T10:00:00Z", 1_793_527_200 * S),
        ("2026-11-01T11:00:00.123456789+01:00", 1_793_527_200_123_456_789),
    ],
)
def test_times(text: str, expected_ns: int) -> None:
    assert parse_time_ns("start", text) == expected_ns


@pytest.mark.parametrize(
    "text", ["x", "1_000", "NaN", "1e9", ".", "2026-13-01T10:00:00Z", "now", "１２３", "1 ", "17935278000000000000"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="start"):
        parse_time_ns("start", text)


def test_without_times_the_last_hour_is_meant() -> None:
    now_ns = time.time_ns()
    bounds = read_bounds(params())
    assert abs(bounds.end_ns - now_ns) < 5 * S and bounds.range_ns == 3_600 * S
    assert read_bounds(params(since="5m")).range_ns == 300 * S
    assert read_bounds(params(end="100", since="10s")) == Bounds(90 * S, 100 * S)
    # The range before an end in the future begins before now.
    late = read_bounds(params(end=str(now_ns // S + 7_200)))
    assert abs(late.start_ns - (now_ns - 3_600 * S)) < 5 * S
    with pytest.raises(BadInput):
        read_bounds(params(start="2", end="1"))
    # A duration has a unit; only steps are also numbers of seconds.
    for text in ("3600", "1.5", "5.", "x"):
        with pytest.raises(BadInput, match="since"):
            read_bounds(params(since=text))


def test_steps() -> None:
    assert read_step_ms(params(), Bounds(0, 100 * S)) == 1_000
    assert read_step_ms(params(), Bounds(0, 3_600 * S)) == 14_000
    assert read_step_ms(params(step="150.5"), Bounds(0, S)) == 150_500
    assert read_step_ms(params(step="120000ms"), Bounds(0, S)) == 120_000
    # Seconds are cut, not rounded: the nearest double is a little less than 1.001.
    assert read_step_ms(params(step="1.001"), Bounds(0, S)) == 1_000
    assert read_step_ms(params(step="1001ms"), Bounds(0, S)) == 1_001
    for text in ("0", "-1", "x", "0.0009", "60 "):
        with pytest.raises(BadInput):
            read_step_ms(params(step=text), Bounds(0, S))
    assert read_few_steps_ms(params(step="1"), Bounds(0, 100 * S), 100) == 1_000
    with pytest.raises(BadInput, match="widen the step"):
        read_few_steps_ms(params(step="1"), Bounds(0, 101 * S), 100)


def test_limits_and_directions() -> None:
    assert read_limit(params(), 5) == 5 and read_limit(params(limit="10"), 5) == 10
    for text in ("0", "-1", "x", "1.5", " 5", "9" * 19, "9" * 30):
        with pytest.raises(BadInput):
            read_limit(params(limit=text))
    check_entries(10, 10)
    with pytest.raises(BadInput, match=r"api\.max_entries \(11 > 10\)"):
        check_entries(11, 10)
    assert read_newest_first(params()) and read_newest_first(params(direction=""))
    assert not read_newest_first(params(direction="Forward"))
    with pytest.raises(BadInput):
        read_newest_first(params(direction="sideways"))
