"""Kernels in memory before the first client waits for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.language import Plan, StepPlan
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from lakerunner.runtime.kernels import Share

#: What dashboards ask for most.
_USUAL = (
    "m",
    "sum by (a) (rate(m[1m]))",
    "histogram_quantile(0.9, sum by (le) (rate(m[1m])))",
    "max_over_time(m[1m]) / ignoring (a) group_left sum(m)",
    "avg(increase(m[1m])) or vector(0)",
    "topk(2, m)",
    "histogram_quantile(0.9, sum by (a) (rate(h[1m])))",
)


Compile = Callable[[str, QueryTimes, EngineOptions], Plan]


def shares(compile_query: Compile) -> list[Share]:
    """Each evaluates a usual expression over a little data. The first run ever compiles; later runs load the result."""
    return [partial(_evaluate, text, compile_query) for text in _USUAL]


def _evaluate(text: str, compile_query: Compile) -> None:
    source = _source()
    for query_times in (QueryTimes(60_000, 240_000, 60_000), QueryTimes(240_000, 240_000, 0)):
        plan = compile_query(text, query_times, EngineOptions())
        assert isinstance(plan, StepPlan)
        plan.evaluate(query_times.steps(), source, lambda: None, plan.options.max_samples)


@cache
def _source() -> MemorySource:
    source = MemorySource()
    times = np.arange(20) * 15_000
    hists = [Histogram(count=n, sum=n, pos_index=np.array([1]), pos_count=np.array([float(n)])) for n in range(20)]
    for number in range(3):
        labels = {"a": str(number), "le": str(number)}
        source.add(LabelSet.of({"__name__": "m", **labels}), times, np.arange(20.0))
        source.add(LabelSet.of({"__name__": "h", **labels}), times, np.zeros(20), histograms=hists)
    return source
