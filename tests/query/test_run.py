"""A query run in groups gives what it gives as a whole, and later groups are read while earlier ones are used."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query import language
from lakerunner.query.language import Evaluated, StepPlan
from lakerunner.query.plan.leaf import extent_of
from lakerunner.query.run import STREAMED_GROUPS, StepRun, joined
from lakerunner.query.series.batch import STALE, SeriesBatch
from lakerunner.query.series.histograms.histogram import Histogram, Ints
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.series.results import MatrixResult, QueryResult, matrix_of, since
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from tests.examples import examples
from tests.query.engine import Engine

OPTIONS = EngineOptions(lookback_ms=40_000, default_step_ms=10_000)
QUERY = QueryTimes(100_000, 700_000, 10_000)


def gappy_source() -> MemorySource:
    """Counters with resets, gauges, gaps, stale markers, NaN and histograms: series that come and go."""
    source = MemorySource()
    rng = np.random.default_rng(7)
    for number in range(6):
        times = np.flatnonzero(rng.random(80) < 0.8) * 10_000 + number * 100
        values = np.cumsum(rng.integers(0, 9, len(times))).astype(float)
        values[rng.integers(0, len(times))] = 0.0
        labels = {"__name__": "c_total", "job": f"j{number % 2}", "i": str(number)}
        source.add(LabelSet.of(labels), times, values)
        gauge = rng.normal(size=len(times))
        gauge[rng.integers(0, len(times))] = math.nan
        gauge[rng.integers(0, len(times))] = STALE
        start, end = sorted(rng.integers(0, len(times), 2).tolist())
        source.add(LabelSet.of({**labels, "__name__": "g"}), times[start : end + 1], gauge[start : end + 1])
        for bound, share in (("1", 0.3), ("5", 0.7), ("+Inf", 1.0)):
            bucket = {**labels, "__name__": "h_bucket", "le": bound}
            source.add(LabelSet.of(bucket), times, np.floor(values * share))
    histograms = [
        Histogram(
            schema=0, count=2.0 * n, sum=3.0 * n, pos_index=np.array([0, 1]), pos_count=np.array([1.0 * n, 1.0 * n])
        )
        for n in range(40)
    ]
    source.add(
        LabelSet.of({"__name__": "nh", "job": "j0"}), np.arange(40) * 15_000, np.zeros(40), histograms=histograms
    )
    return source


SOURCE = gappy_source()


def plan_of(text: str, times: QueryTimes = QUERY, options: EngineOptions = OPTIONS) -> StepPlan:
    plan = Engine(SOURCE, options).compile(text, times.start_ms, times.end_ms, times.step_ms)
    assert isinstance(plan, StepPlan)
    return plan


def evaluated_whole(text: str) -> QueryResult:
    """All steps in one evaluation."""
    plan = plan_of(text)
    found = plan.evaluate(QUERY.steps(), SOURCE, _go_on, OPTIONS.max_samples)
    matrix = matrix_of(found.block, QUERY.steps())
    return QueryResult(matrix, found.notes.warnings(), found.notes.infos(), found.samples)


def _go_on() -> None:
    """Nobody cancels."""


_selectors = st.sampled_from(
    ["g", "c_total", 'g{job="j1"}', "g offset 30s", "g @ 300", "g @ end()", "g @ start()", 'c_total{i=~"[0-3]"}', "nh"]
)
_ranges = st.sampled_from(
    ["c_total[1m]", "g[45s]", "g[2m] offset 1m", "c_total[1m] @ end()", "nh[1m]", "g[1m:15s]", "g[50s:7s] offset 5s"]
)
_vectors = st.recursive(
    _selectors
    | st.builds(
        "{}({})".format,
        st.sampled_from(
            ["rate", "increase", "avg_over_time", "changes", "last_over_time", "delta", "absent_over_time"]
        ),
        _ranges,
    ),
    lambda inner: st.one_of(
        st.builds("{}({})".format, st.sampled_from(["abs", "absent", "sort", "timestamp", "-", "ceil"]), inner),
        st.builds(
            "{} {} ({})".format,
            st.sampled_from(["sum", "avg", "max", "count", "stddev", "group"]),
            st.sampled_from(["by (job)", "without (i)", ""]),
            inner,
        ),
        st.builds("{}({}, ({}))".format, st.sampled_from(["topk", "limitk", "bottomk"]), st.just("2"), inner),
        st.builds("quantile by (job) (0.5, ({}))".format, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["and", "or", "unless"]), inner),
        st.builds(
            "({}) {} on (job, i) ({})".format, inner, st.sampled_from(["+", "*", "== bool", ">", "and", "or"]), inner
        ),
        st.builds(
            "({}) {} {}".format, inner, st.sampled_from(["+", "/", ">", "<= bool"]), st.sampled_from(["2", "time()"])
        ),
        st.builds("max_over_time(({})[40s:10s])".format, inner),
        st.builds('label_replace({}, "x", "$1", "job", "j(.*)")'.format, inner),
        st.builds("histogram_quantile(0.9, sum by (le, job) (rate(h_bucket[1m]))) or ({})".format, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(text=_vectors, width=st.integers(1, 25), from_step=st.integers(0, 70))
def test_groups_together_are_the_whole(text: str, width: int, from_step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language, "_LEAST_STEPS", width)
        patch.setattr(language, "_REACHES", 0)
        try:
            whole = evaluated_whole(text)
        except BadInput as error:
            with pytest.raises(type(error)) as caught:
                list(StepRun(plan_of(text), SOURCE, _go_on, most_groups=1_000))
            assert str(caught.value) == str(error)
            return
        flow = StepRun(plan_of(text), SOURCE, _go_on, most_groups=1_000)
        groups = [group.matrix for group in flow]
        result = joined(flow, groups)
        assert_same(result, whole)
        from_ms = QUERY.start_ms + from_step * QUERY.step_ms
        rest = StepRun(plan_of(text), SOURCE, _go_on, from_ms, most_groups=1_000)
        assert_same(joined(rest, [group.matrix for group in rest]), _after(whole, from_ms), notes=False)


def assert_same(found: QueryResult, expected: QueryResult, *, notes: bool = True) -> None:
    assert isinstance(found.value, MatrixResult)
    assert isinstance(expected.value, MatrixResult)
    assert [series.labels for series in found.value] == [series.labels for series in expected.value]
    for one, other in zip(found.value, expected.value, strict=True):
        assert one.timestamps_ms.tolist() == other.timestamps_ms.tolist()
        assert one.values.tobytes() == other.values.tobytes()
        assert one.histogram_timestamps_ms.tolist() == other.histogram_timestamps_ms.tolist()
        assert all(a.equals(b) for a, b in zip(one.histograms, other.histograms, strict=True))
    if notes:
        assert (found.warnings, found.infos) == (expected.warnings, expected.infos)


def _after(result: QueryResult, from_ms: int) -> QueryResult:
    assert isinstance(result.value, MatrixResult)
    cut_off = since(result.value, from_ms)
    return QueryResult(cut_off, result.warnings, result.infos, result.samples)


class SlowSource:
    """Every read takes a while; says how many ran at once."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self.under_way = 0
        self.most = 0
        self.reads = 0

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        self.under_way += 1
        self.reads += 1
        self.most = max(self.most, self.under_way)
        time.sleep(self._delay_s)
        batch = SOURCE.select(matchers, start_ms, end_ms)
        self.under_way -= 1
        return batch


class PlacedSource(SlowSource):
    """Deals groups to two workers, and notes which steps each was asked for."""

    parallelism, whole = 2, False

    def __init__(self) -> None:
        super().__init__(0.0)
        self.asked: dict[int, str | None] = {}

    def places(self, plan: StepPlan, groups: Sequence[Ints]) -> list[str | None]:
        return [f"worker {number % 2}" for number in range(len(groups))]

    def push_down(self, plan: StepPlan, steps: Ints, max_samples: int, place: str | None = None) -> Evaluated | None:
        self.asked[int(steps[0])] = place
        return None


def test_each_group_is_asked_of_the_worker_that_it_was_dealt_to() -> None:
    source = PlacedSource()
    groups = list(StepRun(plan_of("sum(rate(c_total[20s]))"), source, _go_on, most_groups=STREAMED_GROUPS))
    assert source.asked == {group.start_ms: f"worker {group.number % 2}" for group in groups}


def test_later_groups_are_read_while_earlier_ones_are_evaluated() -> None:
    source = SlowSource(0.05)
    flow = StepRun(plan_of("sum(rate(c_total[20s]))"), source, _go_on, most_groups=STREAMED_GROUPS)
    for group in flow:
        time.sleep(0.05)
        assert group.groups == 3
    assert source.most >= 2
    assert source.reads == 3


def test_a_flow_that_is_left_stops_reading() -> None:
    source = SlowSource(0.01)
    plan = plan_of("c_total", QueryTimes(0, 10_000_000, 1_000))
    flow = iter(StepRun(plan, source, _go_on, most_groups=STREAMED_GROUPS))
    next(flow)
    next(flow)
    flow.close()  # type: ignore[attr-defined]
    time.sleep(0.1)
    reads = source.reads
    time.sleep(0.1)
    assert source.reads == reads <= 5


def test_groups_are_wide_against_what_they_read_twice() -> None:
    query = QueryTimes(0, 86_400_000, 60_000)
    options = EngineOptions()
    groups = plan_of("rate(m[1h])", query, options).groups(16)
    assert all(len(group) >= 240 for group in groups[:-1])
    assert np.concatenate(groups).tolist() == list(range(0, 86_400_001, 60_000))
    assert len(plan_of("m", query, options).groups(16)) == 16
    assert len(plan_of("limitk(2, m)", query, options).groups(16)) == 1


@pytest.mark.parametrize(
    ("text", "start_ms", "end_ms"),
    [
        ("1 + 1", None, None),
        ("m", 95_001, 200_000),
        ("m offset 10s", 85_001, 190_000),
        ("m offset -10s", 105_001, 210_000),
        ("m @ 50", 45_001, 50_000),
        ("m @ end()", 195_001, 200_000),
        ("rate(m[1m])", 40_001, 200_000),
        ("max_over_time(m[1m:10s] offset 5s)", 35_001, 190_000),
        ("a + b offset 1m", 35_001, 200_000),
        ("rate(m[1m] smoothed)", 35_001, 205_000),
    ],
)
def test_extent(text: str, start_ms: int | None, end_ms: int | None) -> None:
    """From the first millisecond that matters to the last: windows are open to the left."""
    plan = plan_of(text, QueryTimes(100_000, 200_000, 10_000), EngineOptions(lookback_ms=5_000))
    found = extent_of(plan.leaves)
    if found is None:
        assert start_ms is None
        return
    assert (found.start_ns // 1_000_000, found.end_ns // 1_000_000 - 1) == (start_ms, end_ms)


def test_reach_of_a_long_chain() -> None:
    assert plan_of("+".join(["m"] * 5_000), QUERY, EngineOptions(lookback_ms=1_000)).reach_ms() == 999
