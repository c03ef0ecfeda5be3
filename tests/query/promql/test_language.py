"""The selects of a query are known before it runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakerunner.model.labels import LabelSet
from lakerunner.query.language import StepPlan
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.reading import RAW, Reading
from tests.query.engine import Engine

START_MS, END_MS, STEP_MS = 600_000, 1_200_000, 60_000

QUERIES = [
    "m",
    "sum by (job) (rate(m[5m] offset 1m))",
    "m @ 100 + n offset -1m",
    "max_over_time(rate(m[2m])[10m:30s] @ end())",
    "topk(scalar(n), m)",
    "rate(m[5m] smoothed) + increase(m[5m] anchored)",
    "histogram_quantile(0.9, sum by (le) (rate(m[5m])))",
    "timestamp(m) > bool count_over_time(n[step()])",
    "quantile_over_time(scalar(n), m[range()])",
    "absent_over_time(m[5m]) or absent(n)",
]


def leaves(text: str) -> tuple[Leaf, ...]:
    return Engine(MemorySource()).compile(text, START_MS, END_MS, STEP_MS).leaves


class _Watched:
    def __init__(self, inner: MemorySource) -> None:
        self.inner = inner
        self.asked: list[Leaf] = []

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        self.asked.append(Leaf.of_samples(matchers, start_ms, end_ms, reading))
        return self.inner.select(matchers, start_ms, end_ms)


@pytest.mark.parametrize("text", QUERIES)
def test_the_plan_is_what_the_evaluation_asks_for(text: str) -> None:
    source = MemorySource()
    for name in ("m", "n"):
        source.add(LabelSet.of({"__name__": name, "le": "1"}), range(0, END_MS, 15_000), [1.0] * (END_MS // 15_000))
    watched = _Watched(source)
    plan = Engine(watched).compile(text, START_MS, END_MS, STEP_MS)
    assert isinstance(plan, StepPlan)
    plan.evaluate(plan.times.steps(), watched, lambda: None, 1 << 40)
    assert leaves(text) == tuple(watched.asked)


def test_the_same_selector_is_read_once_whatever_is_done_with_it() -> None:
    (leaf,) = leaves("sum(rate(m[5m])) / sum(increase(m[5m]))")
    assert (leaf.start_ms, leaf.end_ms) == (START_MS - 300_000 + 1, END_MS)


def test_a_selector_that_stands_twice_is_read_once() -> None:
    assert len(leaves("sum(rate(m[5m])) / count(rate(m[5m]))")) == 1
