"""Rolling up: equal to the plain model, the same through any finer tier, with quantiles within 1%."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.model.signals.tiers import ROLLED_TIERS_S, TIER_SAMPLES
from lakerunner.pipeline.rollup.roll_up import roll_up, roll_up_tiers, tier_of
from tests.examples import examples
from tests.pipeline.rollup.naive import STALE, Histogram, Sample, bits, rolled_up, table_of

#: Sums of a few of these are exact, so that the order of additions does not matter.
NUMBERS = st.one_of(
    st.integers(-(1 << 20), 1 << 20).map(lambda n: n / 8),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, STALE, STALE]),
)
BUCKETS = st.dictionaries(st.integers(-4, 4), st.integers(0, 3).map(float), max_size=3)
HISTOGRAMS = st.builds(
    Histogram,
    count=st.integers(0, 6).map(float),
    total=st.one_of(st.none(), st.integers(0, 9).map(float), st.just(STALE)),
    zero=st.integers(0, 1).map(float),
    positive=BUCKETS,
    negative=BUCKETS,
    schema=st.sampled_from([3, 3, 3, 2]),
    hint=st.sampled_from([0, 0, 0, 1, 2, 3]),
)


UNIFORM = HISTOGRAMS.map(lambda h: replace(h, schema=3, hint=0, total=h.total or 0.0))
ALL_KINDS = (NUMBERS, UNIFORM, HISTOGRAMS, st.one_of(NUMBERS, HISTOGRAMS))


@st.composite
def samples(draw: st.DrawFn, kinds: tuple[st.SearchStrategy[Any], ...] = ALL_KINDS) -> list[Sample]:
    """A few series over some buckets, with gaps, falling values, stale markers, starts and times on the bounds."""
    found = []
    for tid in draw(st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True)):
        kind = draw(st.sampled_from(kinds))
        steps = st.one_of(st.integers(1, 400), st.sampled_from([15_000, 60_000, 3_000_000]))
        time = 3_600_000 * draw(st.integers(0, 3))
        start = 0
        for gap in draw(st.lists(steps, max_size=30)):
            start = draw(st.sampled_from([start, start, start, start, 0, time, time + 1]))
            time += gap
            found.append(Sample(tid, time, draw(kind), start))
    return found


@settings(max_examples=examples(40), deadline=None)
@given(samples(), st.sampled_from([10, 60]))
def test_equals_the_plain_model(found: list[Sample], tier_s: int) -> None:
    _assert_model(found, tier_s)


@settings(max_examples=examples(20), deadline=None)
@given(samples((NUMBERS, UNIFORM)), st.sampled_from([300, 3_600]))
def test_equals_the_plain_model_through_finer_tiers(found: list[Sample], tier_s: int) -> None:
    _assert_model(found, tier_s)


def _assert_model(found: list[Sample], tier_s: int) -> None:
    rolled = roll_up(table_of(found), tier_s)
    assert rolled.schema.names == TIER_SAMPLES.schema().names
    expected = rolled_up(found, tier_s)
    rows = rolled.to_pylist()
    times = rolled["timestamp"].cast(pa.int64()).to_pylist()
    assert [(row["tid"], time) for row, time in zip(rows, times, strict=True)] == [(e.tid, e.time) for e in expected]
    raw = table_of(found)
    _assert_rows_of(raw, rolled)
    for row, want in zip(rows, expected, strict=True):
        if want.aggregates is None:
            assert all(row[name] is None for name in row if name.startswith("chq_rollup_"))
        else:
            _assert_aggregates(row, want.aggregates)


def _assert_rows_of(raw: pa.Table, rolled: pa.Table) -> None:
    """Every kept row is a row of the raw table, bit for bit."""
    known = {_row_bits(row) for row in raw.to_pylist()}
    kept = rolled.select(raw.schema.names)
    assert {_row_bits(row) for row in kept.to_pylist()} <= known


def _row_bits(row: dict[str, Any]) -> str:
    return repr({name: bits(value) if isinstance(value, float) else value for name, value in row.items()})


def _assert_aggregates(row: dict[str, Any], want: dict[str, Any]) -> None:
    values = want.pop("values", None)
    for name, value in want.items():
        found = row[f"chq_rollup_{name}"]
        if name == "first_timestamp":
            assert round(found.timestamp() * 1000) == value
        elif isinstance(value, float):
            assert found == value or (math.isnan(found) and math.isnan(value)), name
        else:
            assert found == value, name
    if values is None:
        assert row["chq_rollup_sum"] is None and row["chq_rollup_sketch_schema"] is None
    else:
        for q in (0.0, 0.5, 0.95, 0.99, 1.0):
            if values:
                exact = values[max(0, math.ceil(q * len(values)) - 1)]
                assert quantile(row, q) == pytest.approx(exact, rel=0.01, abs=1e-300)


def quantile(row: dict[str, Any], q: float) -> float:
    """The q-quantile that a sketch gives: the middle of the bucket of that rank."""
    base = 2.0 ** (2.0 ** -row["chq_rollup_sketch_schema"])
    buckets: list[tuple[float, float]] = []
    for side, sign in (("positive", 1.0), ("negative", -1.0)):
        index, counts = 0, iter(row[f"chq_rollup_sketch_{side}_buckets"])
        for span in row[f"chq_rollup_sketch_{side}_spans"]:
            index += span["offset"]
            for _ in range(span["length"]):
                middle = math.inf if index > 1024 << 6 else 2 * base**index / (base + 1)
                buckets.append((sign * middle, next(counts)))
                index += 1
    buckets.append((0.0, row["chq_rollup_sketch_zero_count"]))
    rank = max(1, math.ceil(q * sum(count for _, count in buckets)))
    for middle, count in sorted(buckets):
        rank -= count
        if rank <= 0:
            return middle
    raise AssertionError("the sketch is empty")


@settings(max_examples=examples(20), deadline=None)
@given(samples())
def test_a_tier_of_a_tier_is_the_tier_of_the_raw(found: list[Sample]) -> None:
    raw = table_of(found)
    through = raw
    for tier_s in ROLLED_TIERS_S:
        through = roll_up(through, tier_s)
        direct = roll_up(raw, tier_s)
        assert same(through, direct)
        assert same(roll_up(direct, tier_s), direct), "rolling up again changes nothing"
    at_once = roll_up_tiers(raw, ROLLED_TIERS_S)
    assert all(same(table, roll_up(raw, tier_s)) for tier_s, table in at_once.items())


def same(left: pa.Table, right: pa.Table) -> bool:
    """Whether all rows are equal, bit for bit."""
    return left.schema.equals(right.schema, check_metadata=True) and _bits_of(left) == _bits_of(right)


def _bits_of(table: pa.Table) -> list[Any]:
    columns = []
    for column in table.columns:
        if column.type == pa.float64():
            array = column.combine_chunks()
            whole = array.fill_null(0.0).to_numpy(zero_copy_only=False).view(np.uint64).tolist()
            columns.append((whole, array.is_null().to_pylist()))
        else:
            columns.append(column.to_pylist())
    return columns


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=200))
def test_tiers_agree_on_any_numbers(values: list[float]) -> None:
    raw = table_of([Sample(1, 7_000 * (i + 1), value) for i, value in enumerate(values)])
    assert same(roll_up(roll_up(raw, 60), 300), roll_up(raw, 300))
    row = roll_up(raw, 86_400).to_pylist()[-1]
    assert row["chq_rollup_count"] == len(values)
    assert row["chq_rollup_sum"] == pytest.approx(math.fsum(values), rel=1e-15, abs=1e-290)


def test_infinite_values_have_a_place_in_the_sketch() -> None:
    raw = table_of([Sample(1, 1_000, math.inf), Sample(1, 2_000, 1.0), Sample(1, 3_000, -math.inf)])
    row = roll_up(raw, 60).to_pylist()[-1]
    assert row["chq_rollup_count"] == 3
    assert row["chq_rollup_max"] == math.inf and row["chq_rollup_min"] == -math.inf
    assert math.isnan(row["chq_rollup_sum"]) and row["chq_rollup_sum_low"] == 0.0
    assert sum(row["chq_rollup_sketch_positive_buckets"]) == 2
    assert quantile(row, 0.5) == pytest.approx(1.0, rel=0.01)


def test_nothing_becomes_nothing() -> None:
    rolled = roll_up(table_of([]), 60)
    assert rolled.num_rows == 0
    assert tier_of(rolled) == 60


def test_a_coarse_tier_does_not_become_a_fine_one() -> None:
    with pytest.raises(BadInput, match="rolled up to 300 s already"):
        roll_up(roll_up(table_of([Sample(1, 1, 1.0)]), 300), 60)
    with pytest.raises(BadInput, match="no such tier"):
        roll_up(table_of([]), 61)
