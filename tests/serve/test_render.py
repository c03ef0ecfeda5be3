"""JSON made as bytes is the JSON that Prometheus makes, number by number."""

from __future__ import annotations

import math

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram
from lakerunner.query.series.results import NO_TIMES, MatrixResult, Series
from lakerunner.serve.rendering.json import histogram_json
from lakerunner.serve.rendering.numbers import time_text, time_texts, value_text, value_texts
from lakerunner.serve.rendering.values import data_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (100.0, "100"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e-6, "0.000001"),
        (-1.25e-5, "-0.0000125"),
        (9.99e-7, "9.99e-07"),
        (1e20, "100000000000000000000"),
        (123456789012345678.0, "123456789012345680"),
        (1e21, "1e+21"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_as_prometheus_writes_them(value: float, text: str) -> None:
    assert value_text(value) == text
    assert value_texts(np.array([1.5, value, 2.0])) == [b"1.5", text.encode(), b"2"]


_floats = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**6), 10**6).map(float)


@given(st.lists(_floats, min_size=1, max_size=40), st.integers(-(10**12), 10**13), st.integers(1, 10**6))
def test_a_matrix_reads_back_as_it_was(values: list[float], start_ms: int, step_ms: int) -> None:
    times = start_ms + step_ms * np.arange(len(values), dtype=np.int64)
    series = [
        Series(LabelSet.of({"a": str(n)}), times, np.array(part), NO_TIMES, [])
        for n, part in enumerate((values, [1.0] * len(values), values[::-1]))
    ]
    document = orjson.loads(data_json(MatrixResult(series)))
    for one, told in zip(series, document["result"], strict=True):
        assert [value for _, value in told["values"]] == [value_text(value) for value in one.values.tolist()]
        assert [round(time * 1000) for time, _ in told["values"]] == times.tolist()
        for (_, text), value in zip(told["values"], one.values.tolist(), strict=True):
            number = float(text)
            assert number == value or (math.isnan(number) and math.isnan(value))


@given(st.lists(st.integers(-(10**14), 10**14)))
def test_times(times_ms: list[int]) -> None:
    assert time_texts(np.array(times_ms, dtype=np.int64)) == [time_text(one) for one in times_ms]


def test_histograms_say_which_bounds_belong() -> None:
    histogram = Histogram(
        schema=0,
        count=10.0,
        sum=math.nan,
        zero_threshold=0.5,
        zero_count=1.0,
        pos_index=np.array([1, 2]),
        pos_count=np.array([3.0, 0.0]),
        neg_index=np.array([1]),
        neg_count=np.array([6.0]),
    )
    assert orjson.loads(histogram_json(histogram)) == {
        "count": "10",
        "sum": "NaN",
        "buckets": [[1, "-2", "-1", "6"], [3, "-0.5", "0.5", "1"], [0, "1", "2", "3"]],
    }
    custom = Histogram(
        schema=CUSTOM_SCHEMA,
        count=3.0,
        sum=1.0,
        pos_index=np.array([0, 2]),
        pos_count=np.array([1.0, 2.0]),
        bounds=(5.0, 10.0),
    )
    assert orjson.loads(histogram_json(custom))["buckets"] == [[3, "-Inf", "5", "1"], [0, "10", "+Inf", "2"]]
    assert "buckets" not in orjson.loads(histogram_json(Histogram()))


def test_labels_that_are_no_text() -> None:
    series = Series(LabelSet.of({"a": "\udc80"}), np.array([0]), np.array([1.0]), NO_TIMES, [])
    assert orjson.loads(data_json(MatrixResult([series])))["result"][0]["metric"] == {"a": "?"}
