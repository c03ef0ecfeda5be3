"""Answers over tiers are those over raw samples, value by value, wherever tiers are clean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.model.labels import LabelSet
from lakerunner.model.signals.tiers import ROLLED_TIERS_S
from lakerunner.query.plan.tiers import TierStretch
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.results import MatrixResult, QueryResult
from lakerunner.query.vectors.context import EngineOptions
from tests.examples import examples
from tests.query.engine import Engine
from tests.query.tiered_source import TieredSource, stretch

DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
START_MS = 20_000 * DAY_MS

#: Functions whose value over a tier has the bits of the value over raw samples.
EXACT = (
    "{m}", "timestamp({m})", "rate({m}[{r}])", "increase({m}[{r}])", "delta({m}[{r}])", "min_over_time({m}[{r}])",
    "max_over_time({m}[{r}])", "count_over_time({m}[{r}])", "last_over_time({m}[{r}])", "first_over_time({m}[{r}])",
    "present_over_time({m}[{r}])", "ts_of_first_over_time({m}[{r}])", "ts_of_last_over_time({m}[{r}])",
    "absent_over_time({m}[{r}])", "sum by (k) (rate({m}[{r}]))",
    "histogram_quantile(0.9, sum by (k) (rate({m}[{r}])))", "max_over_time(rate({m}[{r}])[6h:{r}])",
)  # fmt: skip
#: Their values are sums of floats: compensated ones, which agree to the last digit but one.
SUMS = ("sum_over_time({m}[{r}])", "avg_over_time({m}[{r}])")
#: These read raw samples.
OTHERS = ("irate({m}[{r}])", "changes({m}[{r}])", "stddev_over_time({m}[{r}])", "quantile_over_time(0.5, {m}[{r}])")
METRICS = ("c_total", "g", "d_total", "h", "mixed")


def _times(rng: np.random.Generator, hours: float) -> np.ndarray:
    """Times with gaps, some of them exactly on the edges of buckets."""
    step_ms = int(rng.choice([10_000, 15_000, 60_000, 240_000]))
    times = START_MS + np.arange(0, int(hours * HOUR_MS), step_ms)
    if rng.random() < 0.5:
        times = times + rng.integers(0, step_ms)
    keep = rng.random(len(times)) < rng.choice([1.0, 0.9, 0.3])
    begin = rng.integers(0, len(times))
    keep[begin : begin + len(times) // 5] = False
    return times[keep]


def _counter(rng: np.random.Generator, n: int) -> np.ndarray:
    """Whole numbers, so that the corrections of several resets have one sum."""
    values = np.cumsum(rng.integers(0, 100, n)).astype(float)
    for at in rng.integers(0, max(n, 1), rng.integers(0, 6)):
        values[at:] -= values[at]
    return values


def _starts(rng: np.random.Generator, times: np.ndarray, values: np.ndarray) -> np.ndarray:
    kind = rng.integers(3)
    if kind == 0 or not len(times):
        return np.zeros(len(times), np.int64)
    if kind == 1:
        return np.full(len(times), times[0] - int(rng.integers(0, HOUR_MS)))
    resets = np.maximum.accumulate(np.where(np.append(True, np.diff(values) < 0), np.arange(len(times)), 0))
    return times[resets] - 1


def _histograms(rng: np.random.Generator, n: int) -> list[Histogram]:
    counts = np.stack([_counter(rng, n), _counter(rng, n)])
    return [
        Histogram(schema=1, count=float(a + b), sum=float(a), pos_index=np.array([0, 2]), pos_count=np.array([a, b]))
        for a, b in counts.T
    ]


def _loaded(seed: int, hours: float) -> MemorySource:
    rng = np.random.default_rng(seed)
    loaded = MemorySource()
    for number in range(3):

        def labels(name: str, number: int = number) -> LabelSet:
            return LabelSet.of({"__name__": name, "k": str(number % 2), "n": str(number)})

        times = _times(rng, hours)
        values = _counter(rng, len(times))
        loaded.add(labels("c_total"), times, values, _starts(rng, times, values))
        times = _times(rng, hours)
        gauge = rng.normal(scale=10.0 ** rng.integers(-3, 9), size=len(times))
        odd = rng.integers(0, max(1, len(times)), min(len(times), 6))
        gauge[odd] = [STALE, np.nan, np.inf, STALE, -np.inf, 0.0][: len(odd)]
        loaded.add(labels("g"), times, gauge)
        times = _times(rng, hours)
        if len(times) > 1:
            loaded.add(labels("d_total"), times[1:], rng.integers(0, 50, len(times) - 1).astype(float), times[:-1])
        times = _times(rng, hours)
        loaded.add(labels("h"), times, np.zeros(len(times)), histograms=_histograms(rng, len(times)))
        times = _times(rng, hours)
        hists = [one if rng.random() < 0.1 else None for one in _histograms(rng, len(times))]
        loaded.add(labels("mixed"), times, _counter(rng, len(times)), histograms=hists)
    return loaded


def _stretches(rng: np.random.Generator, hours: float) -> list[TierStretch]:
    """Windows of an hour or a day, some of them clean."""
    found = []
    chance = rng.choice([1.0, 0.7, 0.3])
    for tier_s in ROLLED_TIERS_S:
        width_ms = HOUR_MS if tier_s <= 300 else DAY_MS
        first = (START_MS - 1) // width_ms * width_ms
        begins = range(first, START_MS + int(hours * HOUR_MS) + width_ms, width_ms)
        found += [stretch(tier_s, begin, begin + width_ms) for begin in begins if rng.random() < chance]
    return found


def _series(result: QueryResult) -> dict[object, tuple[list[int], list[float], list[int], list[Histogram]]]:
    assert isinstance(result.value, MatrixResult)
    return {
        one.labels: (
            one.timestamps_ms.tolist(), one.values.tolist(), one.histogram_timestamps_ms.tolist(), list(one.histograms)
        )
        for one in result.value.series
    }  # fmt: skip


def _close(left: float, right: float, scale: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return left == right or abs(left - right) <= scale * max(abs(left), abs(right))


def _check_same(raw: QueryResult, tiered: QueryResult, scale: float, what: str) -> None:
    expected, found = _series(raw), _series(tiered)
    assert list(found) == list(expected), what
    for labels, (times, values, hist_times, hists) in expected.items():
        assert found[labels][0] == times and found[labels][2] == hist_times, (what, labels)
        for at, left, right in zip(times, values, found[labels][1], strict=True):
            assert _close(left, right, scale), (what, labels, at, left, right)
        for at, one, other in zip(hist_times, hists, found[labels][3], strict=True):
            assert one.equals(other), (what, labels, at, one, other)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_tiers_answer_as_raw_samples_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hours = float(rng.choice([3, 30, 60]))
    loaded = _loaded(seed, hours)
    source = TieredSource(loaded, _stretches(rng, hours))
    lookback_ms = int(rng.choice([5 * MINUTE_MS, 7 * MINUTE_MS, 2 * HOUR_MS]))
    tiered = Engine(source, EngineOptions(lookback_ms=lookback_ms))
    raw = Engine(loaded, EngineOptions(lookback_ms=lookback_ms, max_tier_s=0))
    for _ in range(8):
        template = str(rng.choice([*EXACT, *SUMS, *OTHERS]))
        metric = str(rng.choice(METRICS))
        unit_ms = int(rng.choice([MINUTE_MS, 5 * MINUTE_MS, HOUR_MS] + ([DAY_MS] if hours > 24 else [])))
        selector = metric
        text = template.replace("{r}", f"{unit_ms * int(rng.integers(1, 4)) // 1000}s")
        if rng.random() < 0.3:
            shift = f" offset {unit_ms // 1000}s" if rng.random() < 0.7 else f" @ {(START_MS + 2 * unit_ms) // 1000}"
            text = text.replace("]", f"]{shift}", 1) if "[" in text else text.replace("{m}", "{m}" + shift)
        text = text.replace("{m}", selector)
        start_ms = (START_MS // unit_ms + int(rng.integers(0, 3))) * unit_ms
        start_ms += 0 if rng.random() < 0.9 else 7_000
        end_ms = max(start_ms, START_MS + int(hours * HOUR_MS))
        step_ms = unit_ms * int(rng.integers(1, 3))
        what = f"seed {seed}: {text} from {start_ms} to {end_ms} by {step_ms}"
        # Corrections of several resets in one bucket are a sum too, and a gauge of fractions has many.
        added = template in SUMS or (metric == "g" and ("rate" in template or "increase" in template))
        scale = 1e-12 if added else 0.0
        _check_same(
            raw.range(text, start_ms, end_ms, step_ms), tiered.range(text, start_ms, end_ms, step_ms), scale, what
        )


def test_the_property_reads_tiers() -> None:
    """A test of equality that never reads a tier would pass."""
    loaded = _loaded(3, 60)
    source = TieredSource(loaded, _stretches(np.random.default_rng(1), 60))
    for text in EXACT + SUMS:
        source.choices.clear()
        query = text.replace("{m}", "c_total").replace("{r}", "1h")
        Engine(source).range(query, START_MS + HOUR_MS, START_MS + 48 * HOUR_MS, HOUR_MS)
        assert any(choice.tiers_s - {0} for choice in source.choices), text
    for text in OTHERS:
        source.choices.clear()
        query = text.replace("{m}", "c_total").replace("{r}", "1h")
        Engine(source).range(query, START_MS + HOUR_MS, START_MS + 48 * HOUR_MS, HOUR_MS)
        assert all(choice.tiers_s == {0} for choice in source.choices), text


@pytest.mark.parametrize("function", ["sum_over_time", "avg_over_time"])
def test_sums_of_histograms_read_raw_samples(function: str) -> None:
    loaded = _loaded(5, 30)
    source = TieredSource(loaded, _stretches(np.random.default_rng(1), 30))
    times = START_MS + HOUR_MS, START_MS + 24 * HOUR_MS, HOUR_MS
    text = f"{function}(h[1h])"
    _check_same(Engine(loaded).range(text, *times), Engine(source).range(text, *times), 0.0, text)
    assert source.choices[-1].tiers_s == {0}


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_quantiles_of_sketches_are_within_one_percent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hours = float(rng.choice([3, 30]))
    loaded = _loaded(seed, hours)
    source = TieredSource(loaded, _stretches(rng, hours))
    approximate = Engine(source, EngineOptions(approximate=True))
    raw = Engine(loaded, EngineOptions(max_tier_s=0))
    for metric in METRICS:
        unit_ms = int(rng.choice([MINUTE_MS, 5 * MINUTE_MS, HOUR_MS]))
        selector = f"{metric}[{unit_ms * int(rng.integers(1, 4)) // 1000}s]"
        text = f"quantile_over_time({rng.choice([0.0, 0.5, 0.95, 0.99, 1.0, rng.random(), 1.5, -1.0])}, {selector})"
        times = START_MS // unit_ms * unit_ms, START_MS + int(hours * HOUR_MS), unit_ms
        expected, found = _series(raw.range(text, *times)), _series(approximate.range(text, *times))
        assert list(found) == list(expected), (seed, text)
        lows, highs = (_series(raw.range(f"{name}_over_time({selector})", *times)) for name in ("min", "max"))
        for labels, (at, values, *_) in expected.items():
            assert found[labels][0] == at
            low_at, high_at = (dict(zip(*each.get(labels, ([], []))[:2], strict=True)) for each in (lows, highs))
            for time, left, right in zip(at, values, found[labels][1], strict=True):
                low, high = low_at.get(time, 0.0), high_at.get(time, 0.0)
                # Between a negative and a positive value, the error is relative to these and not to what lies between.
                room = 0.0055 * max(-low, high) if low < 0 < high else 0.0
                near = _close(left, right, 0.01) or abs(left - right) <= room
                assert near, (seed, text, labels, time, left, right)


def test_quantiles_read_sketches_only_where_that_is_allowed_and_say_so() -> None:
    loaded = _loaded(3, 60)
    source = TieredSource(loaded, _stretches(np.random.default_rng(1), 60))
    times = START_MS + HOUR_MS, START_MS + 48 * HOUR_MS, HOUR_MS
    text = "quantile_over_time(0.9, c_total[1h])"
    exact = Engine(source).range(text, *times)
    assert source.choices[-1].tiers_s == {0} and not exact.warnings
    assert "approximate=1 allows their sketches" in source.choices[-1].reasons[0]
    nearly = Engine(source, EngineOptions(approximate=True)).range(text, *times)
    assert source.choices[-1].tiers_s - {0}
    assert source.choices[-1].reasons[-1].startswith("approximate: sketches of the tiers")
    (warning,) = nearly.warnings
    assert "computed from sketches of rollup tiers, within 1%" in warning
