from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.times import to_nanos
from lakerunner.formats.written_times import SHAPES

NOW_NS = 1_763_200_000_123_456_789


@pytest.mark.parametrize(
    ("value", "nanos"),
    [
        (1_763_200_000, 1_763_200_000_000_000_000),
        (1_763_200_000_123, 1_763_200_000_123_000_000),
        (1_763_200_000_123_456, 1_763_200_000_123_456_000),
        (NOW_NS, NOW_NS),
        (0, 0),
        (1_763_200_000.123, 1_763_200_000_123_000_000),
        (1_763_200_000_123.5, 1_763_200_000_123_500_000),
        ("1763200000", 1_763_200_000_000_000_000),
        ("1763200000.123", 1_763_200_000_123_000_000),
        (str(NOW_NS), NOW_NS),
        ("2025-11-15T09:46:40Z", 1_763_200_000_000_000_000),
        ("2025-11-15T09:46:40.123456789Z", NOW_NS),
        ("2025-11-15t09:46:40.123456789z", NOW_NS),
        ("2025-11-15T09:46:40.123456789999Z", NOW_NS),
        ("2025-11-15T11:46:40.5+02:00", 1_763_200_000_500_000_000),
        ("2025-11-15T11:46:40.5+0200", 1_763_200_000_500_000_000),
        ("2025-11-15 09:46:40,123", 1_763_200_000_123_000_000),
        ("2025-11-15 09:46:40 UTC", 1_763_200_000_000_000_000),
        ("2025-11-15 09:46:40 +0000", 1_763_200_000_000_000_000),
        (" 2025-11-15T09:46:40 ", 1_763_200_000_000_000_000),
        ("2025-11-15", 1_763_164_800_000_000_000),
    ],
)
def test_a_time_is_read(value, nanos):
    found, read = to_nanos(pa.array([value]))
    assert read.tolist() == [True]
    assert found.tolist() == [nanos]


@pytest.mark.parametrize("example", [example for example, _ in SHAPES])
def test_every_written_form_is_read(example):
    near_ns = int(dt.datetime(2026, 11, 16, 17, tzinfo=dt.UTC).timestamp()) * 10**9
    found, read = to_nanos(pa.array([example]), near_ns)
    at = dt.datetime.fromtimestamp(found[0] // 10**9, dt.UTC)
    assert read.all()
    assert (at.year, at.month, at.day) == (2026, 11, 16)
    assert at.hour == (
        0 if ":" not in example and "." not in example and " " not in example else 4 if "+01" in example else 5
    )


@pytest.mark.parametrize(
    ("value", "near", "wanted"),
    [
        ("Nov 16 05:00:00", "2026-11-16T17:00", "2026-11-16T05:00"),
        ("Dec 31 23:59:59", "2027-01-01T00:00", "2026-12-31T23:59:59"),
        ("Jan  1 00:00:01", "2026-12-31T23:59", "2026-01-01T00:00:01"),
        ("Feb 29 05:00:00", "2025-01-01T00:00", "2024-02-29T05:00"),
        ("23:59:59", "2026-11-16T00:01", "2026-11-15T23:59:59"),
        ("05:00:00", "2026-11-16T03:00", "2026-11-16T05:00"),
    ],
)
def test_what_a_time_lacks_comes_from_its_object(value, near, wanted):
    near_ns, wanted_ns = (np.datetime64(text, "ns").astype(np.int64) for text in (near, wanted))
    found, read = to_nanos(pa.array([value]), int(near_ns))
    assert (found.tolist(), read.tolist()) == ([wanted_ns], [True])
    assert to_nanos(pa.array([value]))[1].tolist() == [False]


@pytest.mark.parametrize(
    "value",
    ["yesterday", "", "2025-13-01T00:00:00Z", "2025-11-15T25:00:00Z", "3000-01-01T00:00:00Z", "1e99", float("nan"),
     float("inf"), 10**30 * 1.0, True, "99999999999999999999999"],
)  # fmt: skip
def test_what_is_no_time_is_not_read_and_its_neighbours_are(value):
    good = {str: "2025-11-15T09:46:40Z", float: 1_763_200_000.0, bool: True}[type(value)]
    found, read = to_nanos(pa.array([good, value, None]))
    assert read.tolist() == [type(value) is not bool, False, False]
    assert found.tolist()[1:] == [0, 0]


def test_columns_of_times_are_taken_as_they_are():
    at = dt.datetime(2025, 11, 15, 9, 46, 40, tzinfo=dt.UTC)
    for kind in (pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.timestamp("ns")):
        array = pa.array([1_763_200_000], pa.int64()).cast(pa.timestamp("s", "UTC")).cast(kind)
        assert to_nanos(array)[0].tolist() == [int(at.timestamp()) * 10**9]
    assert to_nanos(pa.array([2**63 + 1], pa.uint64()))[1].tolist() == [False]


@given(
    st.datetimes(min_value=dt.datetime(1973, 4, 1), max_value=dt.datetime(2262, 1, 1)), st.sampled_from([0, 3, 6, 9])
)
def test_every_unit_of_every_time_of_our_age_is_told_apart(at, digits):
    seconds = (at - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
    value = seconds * 10**digits
    assert to_nanos(pa.array([value]))[0].tolist() == [seconds * 10**9]
    assert to_nanos(pa.array([str(value)]))[0].tolist() == [seconds * 10**9]
    assert to_nanos(pa.array([at.isoformat()]))[0].tolist() == [seconds * 10**9 + at.microsecond * 1_000]
