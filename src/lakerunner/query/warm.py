"""Loads the compiled kernels of scans and of every language before the first client would wait for them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.signals.metrics import SERIES
from lakerunner.model.signals.tiers import COUNT, MAX, MIN, SUM, SUM_LOW
from lakerunner.query.language import QueryOptions, StepPlan
from lakerunner.query.languages import MODULES, language
from lakerunner.query.scan.samples.decoded import choose, decoded
from lakerunner.query.scan.samples.merge import joined, merge
from lakerunner.query.scan.samples.series_table import SeriesTable, TableLabels
from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.telemetry import log

_loaded = False


def warm() -> None:
    """Load them once; forks of a process that has them have them too."""
    global _loaded
    if _loaded:
        return
    began_s = time.monotonic()
    for name in MODULES:
        language(name).warm()
    _warm_scan(np.arange(20) * 15_000)
    _warm_tiers()
    _loaded = True
    log().info("kernels loaded", seconds=round(time.monotonic() - began_s, 2))


class _Tier:
    """A source whose samples are rows of a tier, whatever is asked for."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        times_ms = np.arange(1, 11) * 60_000
        labels = LabelSet.of({METRIC_NAME: "m", "a": "b"})
        numbers = {"tid": np.full(10, labels.tid()), "timestamp": times_ms, "value": np.arange(10.0)}
        rows = {**numbers, COUNT: np.ones(10, np.int64), **dict.fromkeys((SUM, SUM_LOW, MIN, MAX), np.arange(10.0))}
        of_tier = decoded(pa.table(rows), reading.need).samples
        raw = decoded(pa.table({**numbers, "timestamp": times_ms + 600_000})).samples
        parts = [replace(each, labels=[labels]) for each in (of_tier, raw)]
        return merge([joined(parts[:1], uuid.UUID(int=0)), parts[1]], uuid.UUID(int=0))


def _warm_tiers() -> None:
    """Evaluate what panels ask of series that rules made, over rows of a tier and samples after them."""
    times = QueryTimes(60_000, 1_200_000, 60_000)
    for text in ("sum by (a) (sum_over_time(m[1m]))", "max by (a) (max_over_time(m[1m]))"):
        plan = language("promql").compile(text, times, QueryOptions())
        assert isinstance(plan, StepPlan)
        plan.evaluate(times.steps(), _Tier(), lambda: None, plan.options.max_samples)


def _warm_scan(times_ms: np.ndarray) -> None:
    """Scan as from a segment. Arrow's arrays are read-only, and kernels are compiled separately for those."""
    labels = LabelSet.of({METRIC_NAME: "m"})
    number, tid = len(times_ms), labels.tid()
    table = SeriesTable.of(
        pa.Table.from_pylist([{"tid": tid, "metric_name": "m", "labels": []}], schema=SERIES.schema())
    )
    rows = {"tid": np.full(number, tid), "timestamp": times_ms, "value": np.arange(float(number))}
    whole = decoded(pa.table(rows)).samples
    part, _ = choose(whole, np.array([True]), 15_000, 60_000)
    merge([replace(samples, labels=TableLabels(table, samples.tids)) for samples in (whole, part)], uuid.UUID(int=0))
