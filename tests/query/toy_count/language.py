"""Tree to a plan, and parts of the plan to values: how many samples there are in the look-back of every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.language import Check, Evaluated, Plan, Source, StepPlan, Stream, step_stream
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.times import QueryTimes, check_steps
from lakerunner.query.syntax.tree import TreeCodec, dumps, loads
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.query.vectors.context import EngineOptions
from tests.query.toy_count.parse import Count, parse

_CODEC = TreeCodec((Count, Matcher, MatchKind))


class CountLanguage:
    name = "count"

    def compile(self, text: str, times: QueryTimes, options: EngineOptions) -> Plan:
        check_steps(times, options.max_steps)
        return CountPlan(parse(text), times, options)

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        document = loads(payload)
        steps = np.array(document["steps"], dtype=np.int64)
        return step_stream(_evaluate(_CODEC.decode(document["query"]), steps, document["lookback_ms"], source))

    def kernels(self) -> tuple[()]:
        return ()


LANGUAGE = CountLanguage()


class CountPlan(StepPlan):
    language = CountLanguage.name

    def __init__(self, query: Count, times: QueryTimes, options: EngineOptions) -> None:
        self._query = query
        self.canonical, self.times, self.options = str(query), times, options
        self.leaves = self.leaves_at(times.steps())

    def leaves_at(self, steps: Ints) -> tuple[Leaf, ...]:
        start_ms = int(steps[0]) - self.options.lookback_ms + 1
        return (Leaf.of_samples(self._query.matchers, start_ms, int(steps[-1])),)

    def payload(self, steps: Ints, max_samples: int) -> bytes:
        query, lookback_ms = _CODEC.encode(self._query), self.options.lookback_ms
        return dumps({"query": query, "steps": steps.tolist(), "lookback_ms": lookback_ms})

    def evaluate(self, steps: Ints, source: SeriesSource, check: Check, max_samples: int) -> Evaluated:
        return _evaluate(self._query, steps, self.options.lookback_ms, source)

    def notes_of(self, document: Mapping[str, Any]) -> Annotations:
        return Annotations.from_json("", document)


def _evaluate(query: Count, steps: Ints, lookback_ms: int, source: SeriesSource) -> Evaluated:
    batch = source.select(query.matchers, int(steps[0]) - lookback_ms + 1, int(steps[-1]))
    times = np.sort(batch.timestamps_ms)
    counts = np.searchsorted(times, steps, "right") - np.searchsorted(times, steps - lookback_ms, "right")
    values = counts[np.newaxis].astype(np.float64)
    block = Block([LabelSet(())], values, np.ones_like(values, dtype=bool), np.zeros(1, dtype=bool))
    return Evaluated(block, Annotations("", CountLanguage.name), len(times))
