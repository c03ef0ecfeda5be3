import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.model.time import (
    NS_PER_DAY,
    NS_PER_HOUR,
    NS_PER_S,
    TimeRange,
    dateint,
    day_range,
    hour_of_day,
    parse_duration_s,
)

times_ns = st.integers(0, 9_000_000_000 * NS_PER_S)


@given(times_ns)
def test_dateint_agrees_with_the_calendar(time_ns: int) -> None:
    moment = dt.datetime.fromtimestamp(time_ns // NS_PER_S, dt.UTC)
    assert dateint(time_ns) == int(moment.strftime("%Y%m%d"))
    assert hour_of_day(time_ns) == moment.hour


@given(times_ns)
def test_a_time_lies_in_the_day_of_its_dateint(time_ns: int) -> None:
    day = day_range(dateint(time_ns))
    assert day.start_ns <= time_ns < day.end_ns
    assert day.end_ns - day.start_ns == NS_PER_DAY


def test_ranges_are_half_open() -> None:
    first, second = TimeRange(0, 10), TimeRange(10, 20)
    assert not first.overlaps(second)
    assert first.overlaps(TimeRange(9, 10))
    assert first.hull(second) == TimeRange(0, 20)


def test_days_of_a_range_exclude_its_end() -> None:
    assert list(TimeRange(0, NS_PER_DAY).dateints()) == [19700101]
    assert list(TimeRange(NS_PER_DAY - 1, NS_PER_DAY + 1).dateints()) == [19700101, 19700102]
    assert list(TimeRange(5, 5).dateints()) == []


def test_a_range_cannot_end_before_it_starts() -> None:
    with pytest.raises(BadInput, match="before its start"):
        TimeRange(2, 1)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("500ms", 0.5), ("1h30m", 5400), ("7d", 604800), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1 h", "1x", "-5m", "1h x"])
def test_bad_durations_say_how_to_write_them(text: str) -> None:
    with pytest.raises(BadInput, match="5m"):
        parse_duration_s(text)


def test_impossible_dates_are_refused() -> None:
    with pytest.raises(BadInput, match="yyyymmdd"):
        day_range(20260230)


def test_an_hour_is_an_hour() -> None:
    assert NS_PER_HOUR * 24 == NS_PER_DAY
