"""Native histograms computed as columns: to the last bit what doing them one by one gives, with the same messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.histograms.column import Arrays, HistogramColumn, stacked
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram, ResetHint
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult
from lakerunner.query.vectors import kernels_distribution, ranges, selection
from lakerunner.query.vectors.histograms import aggregate as aggregate_histogram
from lakerunner.query.vectors.histograms.columnar import Sums, sums
from tests.examples import examples
from tests.query.engine import Engine
from tests.query.vectors.histograms.one_histogram import fraction, has_nan_observations, quantile

QUERIES = (
    "m",
    "rate(m[5m])",
    "increase(m[2m])",
    "delta(m[3m])",
    "sum(m)",
    "avg by (job) (m)",
    "sum by (job) (rate(m[3m]))",
    "rate(m[5m:30s])",
    "sum_over_time(m[3m])",
    "avg_over_time(m[3m])",
    "first_over_time(m[2m])",
    "last_over_time(m[2m])",
    "histogram_quantile(0.9, rate(m[5m]))",
    "histogram_quantile(0.3, sum by (job) (rate(m[5m])))",
    "histogram_quantile(0, m)",
    "histogram_quantile(1, m)",
    "histogram_quantile(1.5, m)",
    "histogram_quantile(NaN, m)",
    "histogram_fraction(-1, 2, m)",
    "histogram_fraction(0.1, +Inf, rate(m[5m]))",
    "histogram_count(rate(m[4m]))",
    "histogram_count(increase(m[31s]))",
    "histogram_avg(sum(m))",
)
_POINTS, _SCRAPE_MS = 40, 15_000
_UNTOLD = (ResetHint.UNKNOWN,) * 4 + (ResetHint.RESET, ResetHint.NOT_RESET)


class _Layout:
    def __init__(self, random: np.random.Generator) -> None:
        self.bounds: tuple[float, ...] = ()
        self.schema, self.zero_threshold = int(random.integers(-4, 9)), float(random.choice([0, 0.001, 1.0]))
        if random.random() < 0.3:
            self.schema, self.zero_threshold = CUSTOM_SCHEMA, 0.0
            self.bounds = tuple(np.unique(random.choice([-1.0, 0.0, 0.5, 1.0, 2.5, 5.0], 4)).tolist())

    def buckets(self, random: np.random.Generator, negative: bool) -> dict[int, float]:
        if negative and (self.bounds or random.random() < 0.5):
            return {}
        low, high = (0, len(self.bounds) + 1) if self.bounds else (-10, 15)
        return {int(index): float(random.integers(0, 5)) * 0.1 for index in random.integers(low, high, 8)}


def _grown(before: dict[int, float], more: dict[int, float]) -> dict[int, float]:
    return {index: before.get(index, 0.0) + more.get(index, 0.0) for index in before.keys() | more.keys()}


def _series(random: np.random.Generator, layouts: list[_Layout], length: int) -> list[Histogram | None]:
    """Mostly a counter that grows, with resets, gauges, changes of layout and odd sums."""
    main = layouts[int(random.integers(len(layouts)))]
    gauge, wavers, drifts, odd = (random.random() < chance for chance in (0.2, 0.1, 0.2, 0.3))
    samples: list[Histogram | None] = []
    pos: dict[int, float] = {}
    neg: dict[int, float] = {}
    zero = 0.0
    for _ in range(length):
        layout = layouts[int(random.integers(len(layouts)))] if drifts and random.random() < 0.1 else main
        if layout is not main or random.random() < 0.1:
            pos, neg, zero = {}, {}, 0.0
        pos, neg = _grown(pos, layout.buckets(random, False)), _grown(neg, layout.buckets(random, True))
        zero += 0.0 if layout.bounds else float(random.integers(0, 3))
        lost = float(random.integers(0, 3)) if random.random() < 0.1 else 0.0
        total = float(random.choice([np.nan, np.inf])) if lost or (odd and random.random() < 0.03) else random.normal()
        told = ResetHint(int(random.choice(_UNTOLD)))
        samples.append(
            Histogram(
                layout.schema,
                1.7e308 if odd and random.random() < 0.03 else sum(pos.values()) + sum(neg.values()) + zero + lost,
                float(total),
                layout.zero_threshold,
                zero,
                np.array(sorted(pos), dtype=np.int64),
                np.array([pos[index] for index in sorted(pos)]),
                np.array(sorted(neg), dtype=np.int64),
                np.array([neg[index] for index in sorted(neg)]),
                layout.bounds,
                ResetHint.GAUGE if gauge is not (wavers and random.random() < 0.2) else told,
            )
        )
        if layout is not main:
            pos, neg, zero = {}, {}, 0.0
    return samples


def _source(seed: int) -> MemorySource:
    random = np.random.default_rng(seed)
    source = MemorySource()
    layouts = [_Layout(random) for _ in range(int(random.integers(1, 4)))]
    for i in range(int(random.integers(1, 6))):
        keep = random.random(_POINTS) < random.choice([1.0, 0.8, 0.3])
        times = (np.arange(_POINTS) * _SCRAPE_MS + int(random.integers(0, 1_000)))[keep]
        if not len(times):
            continue
        samples, values = _series(random, layouts, len(times)), np.zeros(len(times))
        floats = random.random(len(times)) < (0.1 if random.random() < 0.2 else 0.0)
        stale = random.random(len(times)) < 0.03
        values[floats], values[stale] = 1.5, STALE
        for place in (floats | stale).nonzero()[0].tolist():
            samples[place] = None
        starts = np.zeros(len(times), dtype=np.int64)
        if random.random() < 0.4:
            starts = np.maximum(times - random.choice([7_000, _SCRAPE_MS, 40_000], len(times)), 0)
        labels = LabelSet.of({"__name__": "m", "job": f"job-{i % 2}", "i": str(i)})
        source.add(labels, times, values, starts, samples)
    return source


# -- the same, one by one ------------------------------------------------------------------------------------------


def _column(arrays: Arrays) -> HistogramColumn:
    return HistogramColumn(np.arange(len(arrays.schema)), *arrays)


def _no_sums(column: HistogramColumn, rows: object, begin: np.ndarray, end: np.ndarray, *rest: object) -> Sums:
    skipped = rest[-1]
    assert isinstance(skipped, np.ndarray)
    nothing = np.full(len(begin), -1, dtype=np.int64)
    return Sums(HistogramColumn.of([]), nothing, (end > begin) & ~skipped, np.zeros(len(begin), dtype=bool))


def _quantiles(c: Arrays, rows: np.ndarray, q: np.ndarray, fractions: object, *out: np.ndarray) -> None:
    found, power, unplaced = out
    for i, row in enumerate(rows.tolist()):
        histogram = _column(c).at(row)
        found[i], power[i], unplaced[i] = quantile(float(q[i]), histogram), 0, has_nan_observations(histogram)


def _fractions(c: Arrays, rows: np.ndarray, lower: np.ndarray, upper: np.ndarray, _: object, *out: np.ndarray) -> None:
    found, unplaced = out
    for i, row in enumerate(rows.tolist()):
        histogram = _column(c).at(row)
        found[i] = fraction(float(lower[i]), float(upper[i]), histogram)
        unplaced[i] = has_nan_observations(histogram)


def _mark_jumps(offsets: np.ndarray, ts: np.ndarray, after: np.ndarray, until: np.ndarray, out: np.ndarray) -> None:
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        times = ts[begin:end]
        for last, first in zip(until[:-1].tolist(), after[1:].tolist(), strict=True):
            beyond, inside = times[times >= last], np.flatnonzero(times >= first)
            if len(beyond) and beyond[0] < first and len(inside):
                out[begin + inside[0]] = True


def _detect_resets(
    c: Arrays, rows: np.ndarray, offsets: np.ndarray, forgets: np.ndarray, hint: object, previous_row: np.ndarray
) -> None:
    for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        known: list[int] = []
        for row, forget in zip(rows[begin:end].tolist(), forgets[begin:end].tolist(), strict=True):
            known = [] if forget else known
            if row >= 0 and known and c.hint[row] == ResetHint.UNKNOWN:
                previous_row[row] = known[-1]
            known += [row] if row >= 0 else []


@contextmanager
def _one_by_one() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "uniform_windows", lambda *arguments: None)
        patch.setattr(aggregate_histogram, "sums", _no_sums)
        patch.setattr(kernels_distribution, "quantiles", _quantiles)
        patch.setattr(kernels_distribution, "fractions_between", _fractions)
        patch.setattr(selection, "mark_jumps", _mark_jumps)
        patch.setattr(selection, "detect_resets", _detect_resets)
        yield


def _number(value: float) -> str:
    return float(value).hex()


def _shown(histogram: Histogram) -> tuple[object, ...]:
    """All of it, to the bit. Empty buckets say nothing."""
    whole = histogram.compact()
    counts = (whole.count, whole.sum, whole.zero_threshold, whole.zero_count, *whole.pos_count, *whole.neg_count)
    layout = (whole.schema, whole.bounds, whole.hint, whole.pos_index.tolist(), whole.neg_index.tolist())
    return (*layout, *map(_number, counts))


def _answer(source: MemorySource, query: str) -> tuple[object, ...]:
    result = Engine(source).range(query, 0, _POINTS * _SCRAPE_MS, 45_000)
    assert isinstance(result.value, MatrixResult)
    series = [
        (
            one.labels,
            one.timestamps_ms.tolist(),
            list(map(_number, one.values.tolist())),
            one.histogram_timestamps_ms.tolist(),
            list(map(_shown, one.histograms)),
        )
        for one in result.value
    ]
    return series, result.warnings, result.infos, result.samples


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(10), deadline=None)
def test_columns_give_what_one_by_one_gives(seed: int) -> None:
    source = _source(seed)
    for query in QUERIES:
        at_once = _answer(source, query)
        with _one_by_one():
            assert at_once == _answer(source, query), query


def test_no_histogram_is_made_of_a_cell() -> None:
    source = MemorySource()
    _uniform(source)
    made: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        at = HistogramColumn.at
        patch.setattr(HistogramColumn, "at", lambda column, row: made.append(row) or at(column, row))
        for query in QUERIES[12:]:
            Engine(source).range(query, 0, _POINTS * _SCRAPE_MS, 45_000)
    assert not made


def _uniform(source: MemorySource) -> None:
    index = np.arange(4, dtype=np.int64)
    for i in range(3):
        samples = [
            Histogram(2, 10.0 * k, 1.0 * k, pos_index=index, pos_count=np.array([1.0, 2.0, 3.0, 4.0]) * k)
            for k in range(_POINTS)
        ]
        times = np.arange(_POINTS) * _SCRAPE_MS
        source.add(LabelSet.of({"__name__": "m", "i": str(i)}), times, np.zeros(_POINTS), histograms=samples)


def test_sums_leave_what_overflows_and_layouts_that_differ() -> None:
    index = np.array([1], dtype=np.int64)
    huge = Histogram(0, 1.7e308, 1.0, pos_index=index, pos_count=np.array([1.0]))
    fine = Histogram(0, 3.0, 1.0, pos_index=index, pos_count=np.array([3.0]))
    finer = Histogram(1, 3.0, 1.0, pos_index=index, pos_count=np.array([3.0]))
    column = HistogramColumn.of([huge, fine, finer])
    rows, begin = np.array([0, 0, 1, 2, 1, 1]), np.array([0, 2, 4])
    found = sums(column, rows, begin, begin + 2, False, np.zeros(3, dtype=bool))
    assert found.skipped.tolist() == [True, True, False]
    assert found.row.tolist() == [-1, -1, 0]
    assert found.column.at(0).count == 6.0
    assert found.column.at(0).pos_count.tolist() == [6.0]


def test_columns_are_stacked() -> None:
    one, two, three = (Histogram(schema, float(schema), bounds=(1.0,) * schema) for schema in (1, 2, 3))
    whole = stacked([HistogramColumn.of([one]), HistogramColumn.of([two, None, three])])
    assert [whole.at(row).count for row in range(3)] == [1.0, 2.0, 3.0]
    assert [whole.at(row).bounds for row in range(3)] == [one.bounds, two.bounds, three.bounds]
