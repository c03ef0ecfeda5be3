"""Compiled loops against the plain definition of what they compute."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult
from lakerunner.query.vectors import kernels_fold as fold
from tests.query.engine import Engine

_RANGE_MS, _STEP_MS, _END_MS = 60_000, 20_000, 200_000

_values = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, 0.0, 1.0]))
_series = st.dictionaries(st.integers(0, 200), _values, min_size=1, max_size=25).map(
    lambda points: sorted((second * 1000, value) for second, value in points.items())
)


def _windows(points: list[tuple[int, float]]) -> dict[int, list[tuple[int, float]]]:
    return {
        t: [(ts, value) for ts, value in points if t - _RANGE_MS < ts <= t] for t in range(0, _END_MS + 1, _STEP_MS)
    }


def _evaluated(points: list[tuple[int, float]], expr: str) -> dict[int, float]:
    source = MemorySource()
    times, values = zip(*points, strict=True)
    source.add(LabelSet.of({"__name__": "m_total"}), times, values)
    result = Engine(source).range(expr, 0, _END_MS, _STEP_MS).value
    assert isinstance(result, MatrixResult)
    out: dict[int, float] = {}
    for one in result:
        out |= dict(zip(one.timestamps_ms.tolist(), one.values.tolist(), strict=True))
    return out


def _same(got: dict[int, float], expected: dict[int, float]) -> None:
    assert got.keys() == expected.keys()
    for time, value in expected.items():
        np.testing.assert_allclose(got[time], value, rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(_series)
def test_folds_over_windows(points: list[tuple[int, float]]) -> None:
    filled = {t: [value for _, value in window] for t, window in _windows(points).items() if window}
    _same(_evaluated(points, "count_over_time(m_total[1m])"), {t: float(len(v)) for t, v in filled.items()})
    _same(_evaluated(points, "sum_over_time(m_total[1m])"), {t: float(np.sum(v)) for t, v in filled.items()})
    _same(_evaluated(points, "last_over_time(m_total[1m])"), {t: v[-1] for t, v in filled.items()})
    _same(_evaluated(points, "stdvar_over_time(m_total[1m])"), {t: float(np.var(v)) for t, v in filled.items()})
    largest = {t: float(np.nanmax(v)) if not np.isnan(v).all() else math.nan for t, v in filled.items()}
    _same(_evaluated(points, "max_over_time(m_total[1m])"), largest)


def _rate(window: list[tuple[int, float]], end_ms: int) -> float | None:
    """The definition, sample by sample."""
    if len(window) < 2:
        return None
    (first_ms, first), (last_ms, last) = window[0], window[-1]
    increase = last - first + sum(a for (_, a), (_, b) in itertools.pairwise(window) if b < a)
    sampled = (last_ms - first_ms) / 1000
    between = sampled / (len(window) - 1)
    to_start, to_end = (first_ms - (end_ms - _RANGE_MS)) / 1000, (end_ms - last_ms) / 1000
    if to_start >= between * 1.1:
        to_start = between / 2
    if increase > 0 and first >= 0:
        to_start = min(to_start, sampled * first / increase)
    if to_end >= between * 1.1:
        to_end = between / 2
    return increase * (sampled + to_start + to_end) / sampled / 60


@settings(max_examples=100, deadline=None)
@given(_series)
def test_rate(points: list[tuple[int, float]]) -> None:
    expected = {t: rate for t, window in _windows(points).items() if (rate := _rate(window, t)) is not None}
    _same(_evaluated(points, "rate(m_total[1m])"), expected)


@settings(max_examples=40, deadline=None)
@given(_series)
def test_a_histogram_of_one_bucket_has_the_rate_of_its_count(points: list[tuple[int, float]]) -> None:
    points = [(t, abs(v)) for t, v in points if not math.isnan(v)]
    if not points:
        return
    source = MemorySource()
    samples = [Histogram(count=v, sum=v, pos_index=np.array([3]), pos_count=np.array([v]), schema=1) for _, v in points]
    source.add(LabelSet.of({"__name__": "h"}), [t for t, _ in points], [0.0] * len(points), histograms=samples)
    engine = Engine(source)
    rates = {}
    for expr in ("histogram_count(rate(h[1m]))", "histogram_sum(rate(h[1m]))"):
        result = engine.range(expr, 0, _END_MS, _STEP_MS).value
        assert isinstance(result, MatrixResult)
        rates[expr] = {
            t: v for one in result for t, v in zip(one.timestamps_ms.tolist(), one.values.tolist(), strict=True)
        }
    expected = _evaluated(points, "rate(m_total[1m])")
    for found in rates.values():
        _same(found, expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(_series, min_size=1, max_size=5), st.integers(1, 4))
def test_aggregations_agree_with_numpy(many: list[list[tuple[int, float]]], k: int) -> None:
    source = MemorySource()
    for i, points in enumerate(many):
        times, values = zip(*points, strict=True)
        source.add(LabelSet.of({"__name__": "m", "i": str(i)}), times, values)
    shown: dict[int, list[float]] = {}
    for points in many:
        for t in range(0, _END_MS + 1, _STEP_MS):
            past = [value for ts, value in points if ts <= t]
            if past:
                shown.setdefault(t, []).append(past[-1])

    def evaluated(expr: str) -> dict[int, float]:
        result = Engine(source).range(expr, 0, _END_MS, _STEP_MS).value
        assert isinstance(result, MatrixResult)
        return {t: v for one in result for t, v in zip(one.timestamps_ms.tolist(), one.values.tolist(), strict=True)}

    _same(evaluated("sum(m)"), {t: float(np.sum(v)) for t, v in shown.items()})
    _same(evaluated("avg(m)"), {t: float(np.mean(v)) for t, v in shown.items()})
    _same(evaluated(f"count(topk({k}, m))"), {t: float(min(k, len(v))) for t, v in shown.items()})
    best = {t: sum(sorted((x for x in v if x == x), reverse=True)[:k]) for t, v in shown.items()}
    if all(x == x for v in shown.values() for x in v):
        _same(evaluated(f"sum(topk({k}, m))"), best)


@given(
    st.lists(st.one_of(st.integers(0, 5).map(float), st.sampled_from([math.nan, math.inf])), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.3, 0.5, 0.99, 1.0, 1.5, -1.0, math.nan]),
    st.integers(1, 30),
)
def test_quantiles_of_windows_that_overlap(values: list[float], q: float, width: int) -> None:
    """Windows at so many steps that a value lies in many of them, and windows at a few of these steps."""
    found = np.array(values)
    end = np.sort(np.tile(np.arange(1, len(values) + 1), 60))[np.newaxis]
    begin = np.maximum(end - width, 0)
    results = []
    for steps in (slice(None), slice(None, None, 60)):
        out, ok = np.zeros(end[:, steps].shape), np.zeros(end[:, steps].shape, dtype=bool)
        windows = np.ascontiguousarray(begin[:, steps]), np.ascontiguousarray(end[:, steps])
        fold.window_quantile(*windows, found, np.full(out.shape[1], q), False, out, ok)
        assert ok.all()
        results.append(out)
    np.testing.assert_array_equal(results[0][:, ::60], results[1])
