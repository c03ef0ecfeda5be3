"""Native histograms: their arithmetic, and that the fast ways agree with the careful ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.series.histograms.column import ColumnHistograms, HistogramColumn
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram, ResetHint, bucket_bound
from lakerunner.query.series.histograms.math import (
    IncompatibleSchemas,
    add,
    is_reset,
    subtract,
    to_schema,
)
from lakerunner.query.series.histograms.trim import trim
from tests.query.vectors.histograms.one_histogram import fraction, quantile


def made(pos: dict[int, float], neg: dict[int, float] | None = None, **fields: object) -> Histogram:
    neg = neg or {}
    zero = float(fields.get("zero_count", 0.0))  # type: ignore[arg-type]
    return Histogram(
        count=sum(pos.values()) + sum(neg.values()) + zero,
        pos_index=np.array(sorted(pos), dtype=np.int64),
        pos_count=np.array([pos[i] for i in sorted(pos)], dtype=np.float64),
        neg_index=np.array(sorted(neg), dtype=np.int64),
        neg_count=np.array([neg[i] for i in sorted(neg)], dtype=np.float64),
        **fields,  # type: ignore[arg-type]
    )


_counts = st.dictionaries(st.integers(-8, 8), st.integers(1, 50).map(float), max_size=6)
_histograms = st.builds(
    made,
    _counts,
    _counts,
    schema=st.integers(0, 3),
    sum=st.integers(-100, 100).map(float),
    zero_threshold=st.sampled_from([0.0, 0.001, 0.5]),
    zero_count=st.integers(0, 9).map(float),
)


def _observations(histogram: Histogram) -> float:
    return float(histogram.pos_count.sum() + histogram.neg_count.sum() + histogram.zero_count)


@given(_histograms, _histograms)
def test_addition_keeps_every_observation(left: Histogram, right: Histogram) -> None:
    total = add(left, right).value
    assert total.count == left.count + right.count
    assert _observations(total) == _observations(left) + _observations(right)
    assert add(right, left).value.compact().equals(total.compact())


@given(_histograms, _histograms)
def test_subtraction_undoes_addition(left: Histogram, right: Histogram) -> None:
    back = subtract(add(left, right).value, right).value.compact()
    # Addition may have coarsened the layout; in that layout, it is the left one again.
    expected = subtract(add(left, right).value, right).value
    assert back.count == left.count
    assert _observations(back) == _observations(left)
    assert back.equals(expected.compact())


@given(_histograms)
def test_coarser_buckets_hold_the_same_observations(histogram: Histogram) -> None:
    coarse = to_schema(histogram, -1)
    assert coarse.schema == -1
    assert _observations(coarse) == _observations(histogram)


@given(_histograms, _histograms)
def test_what_only_grew_was_not_reset(before: Histogram, more: Histogram) -> None:
    after = add(before, more).value
    if after.schema == before.schema and after.zero_threshold == before.zero_threshold:
        assert not is_reset(after, before)
    if before.count > 0:
        assert is_reset(before.scaled(0.5), before)


@given(st.lists(st.one_of(st.none(), _histograms), min_size=1, max_size=5))
def test_a_column_gives_back_what_it_was_made_of(samples: list[Histogram | None]) -> None:
    column = HistogramColumn.of(samples)
    for row, sample in zip(column.row.tolist(), samples, strict=True):
        assert (row < 0) == (sample is None)
        if sample is not None:
            assert column.at(row).equals(sample)
            assert column.at(row).hint is sample.hint
    lazy = ColumnHistograms(column, column.row[column.row >= 0])
    assert [h.count for h in lazy] == [s.count for s in samples if s is not None]


def test_hints_join() -> None:
    gauge, reset, known = (
        made({0: 1.0}, hint=hint) for hint in (ResetHint.GAUGE, ResetHint.RESET, ResetHint.NOT_RESET)
    )
    assert add(gauge, reset).value.hint is ResetHint.GAUGE
    assert add(known, known).value.hint is ResetHint.NOT_RESET
    collision = add(reset, known)
    assert collision.hint_collision and collision.value.hint is ResetHint.UNKNOWN


def test_custom_bounds_are_reconciled_to_the_common_ones() -> None:
    left = made({0: 1.0, 1: 2.0, 2: 3.0}, schema=CUSTOM_SCHEMA, bounds=(1.0, 5.0))
    right = made({0: 10.0, 1: 20.0}, schema=CUSTOM_SCHEMA, bounds=(5.0,))
    total = add(left, right)
    assert total.bounds_reconciled
    assert total.value.bounds == (5.0,)
    assert total.value.pos_count.tolist() == [13.0, 23.0]
    with pytest.raises(IncompatibleSchemas):
        add(left, made({0: 1.0}))


def test_bounds_double_every_two_to_the_schema_buckets() -> None:
    for schema in range(-2, 5):
        index = np.arange(-20, 20, dtype=np.int64)
        np.testing.assert_allclose(bucket_bound(index, schema), 2.0 ** (index * 2.0**-schema), rtol=1e-14)


@settings(max_examples=60)
@given(_histograms.filter(lambda h: h.count > 0), st.floats(0, 1))
def test_the_fraction_below_a_quantile_is_the_quantile(histogram: Histogram, q: float) -> None:
    value = quantile(q, histogram)
    if histogram.zero_count == 0 and value != 0:
        below = fraction(-math.inf, value, histogram)
        # Between buckets with a gap, any value of the gap is as good a quantile.
        assert below == pytest.approx(q, abs=1e-9) or histogram.count * abs(below - q) < 1e-6 or below <= q + 1e-9


@given(_histograms, st.floats(-300, 300))
def test_both_trims_together_are_the_whole(histogram: Histogram, limit: float) -> None:
    below, above = trim(histogram, limit, upper=True), trim(histogram, limit, upper=False)
    assert below.count + above.count == pytest.approx(_observations(histogram))


def test_it_prints_as_prometheus_prints() -> None:
    histogram = made({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}, zero_count=2.0, zero_threshold=0.001, sum=10.0)
    assert str(histogram) == "{count:8, sum:10, [-2,-1):2, [-1,-0.5):1, [-0.001,0.001]:2, (0.5,1]:1, (1,2]:2}"
