"""Loads the compiled kernels of scans and of every language before the first client would wait for them."""

from __future__ import annotations

import functools
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
from lakerunner.runtime.kernels import Share, load_kernels


@functools.cache
def query_kernels() -> tuple[Share, ...]:
    """The kernels of scans and of every language."""
    # Rows are scanned for most languages, so they come first.
    names = sorted(MODULES, key=lambda name: name != "rows")
    of_languages = (share for name in names for share in language(name).kernels())
    return (*dict.fromkeys(of_languages), _warm_scan, _warm_tiers)


def warm() -> None:
    load_kernels(query_kernels())


class _Tier:
    """A source whose samples are rows of a tier, whatever is asked for."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        times_ms = np.arange(1, 11) * 60_000
        labels = LabelSet.of({METRIC_NAME: "m", "a": "b"})
        numbers = {"tid": np.full(10, labels.tid()), "timestamp": times_ms, "value": np.arange(10.0)}
        rows = {**numbers, COUNT: np.ones(10, np.int64), **dict.fromkeys((SUM, SUM_LOW, MIN, MAX), np.arange(10.0))}
        of_tier = decoded(pa.table(rows), reading.need).samples
        after_ms = times_ms + 600_000
        # Rows of a tier are read without their starts, those of rules have one each.
        raw = decoded(pa.table({**numbers, "timestamp": after_ms, "start_timestamp": after_ms - 1})).samples
        later = decoded(pa.table({**rows, "timestamp": times_ms + 3_600_000}), reading.need).samples
        parts = [replace(each, labels=[labels]) for each in (of_tier, later, raw)]
        # Several segments of a tier are joined, and the times of a query are chosen from that.
        whole = joined(parts[:2], uuid.UUID(int=0))
        chosen, _ = choose(whole, np.array([True]), 60_000, 600_000)
        return merge([replace(chosen, labels=whole.labels), parts[2]], uuid.UUID(int=0))


def _warm_tiers() -> None:
    """Evaluate what panels ask of series that rules made, over rows of a tier and samples after them."""
    times = QueryTimes(60_000, 1_200_000, 60_000)
    for text in ("sum by (a) (sum_over_time(m[1m]))", "max by (a) (max_over_time(m[1m]))"):
        plan = language("promql").compile(text, times, QueryOptions())
        assert isinstance(plan, StepPlan)
        plan.evaluate(times.steps(), _Tier(), lambda: None, plan.options.max_samples)


def _warm_scan() -> None:
    """Scan as from a segment. Arrow's arrays are read-only, and kernels are compiled separately for those."""
    labels, times_ms = LabelSet.of({METRIC_NAME: "m"}), np.arange(20) * 15_000
    number, tid = len(times_ms), labels.tid()
    table = SeriesTable.of(
        pa.Table.from_pylist([{"tid": tid, "metric_name": "m", "labels": []}], schema=SERIES.schema())
    )
    rows = {"tid": np.full(number, tid), "timestamp": times_ms, "value": np.arange(float(number))}
    whole = decoded(pa.table(rows)).samples
    part, _ = choose(whole, np.array([True]), 15_000, 60_000)
    merge([replace(samples, labels=TableLabels(table, samples.tids)) for samples in (whole, part)], uuid.UUID(int=0))
