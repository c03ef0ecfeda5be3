"""Kernels in memory before the first client waits for them."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.signals.metrics import SERIES
from lakerunner.query.promql.engine import Engine
from lakerunner.query.scan.samples.decoded import choose, decoded
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.series_table import SeriesTable, TableLabels
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.runtime.telemetry import log

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


def warm() -> None:
    """Run the usual expressions over a little data. The first run ever compiles; later ones load what was compiled."""
    began_s = time.monotonic()
    source = MemorySource()
    times = np.arange(20) * 15_000
    hists = [Histogram(count=n, sum=n, pos_index=np.array([1]), pos_count=np.array([float(n)])) for n in range(20)]
    for number in range(3):
        labels = {"a": str(number), "le": str(number)}
        source.add(LabelSet.of({"__name__": "m", **labels}), times, np.arange(20.0))
        source.add(LabelSet.of({"__name__": "h", **labels}), times, np.zeros(20), histograms=hists)
    engine = Engine(source)
    for text in _USUAL:
        engine.range(text, 60_000, 240_000, 60_000)
        engine.instant(text, 240_000)
    _warm_scan(times)
    log().info("kernels in memory", seconds=round(time.monotonic() - began_s, 2))


def _warm_scan(times_ms: np.ndarray) -> None:
    """As from a segment: kernels are compiled apart for arrays that cannot be written, as Arrow's are."""
    labels = LabelSet.of({METRIC_NAME: "m"})
    number, tid = len(times_ms), labels.tid()
    table = SeriesTable.of(
        pa.Table.from_pylist([{"tid": tid, "metric_name": "m", "labels": []}], schema=SERIES.schema())
    )
    rows = {"tid": np.full(number, tid), "timestamp": times_ms, "value": np.arange(float(number))}
    whole = decoded(pa.table(rows)).samples
    part, _ = choose(whole, np.array([True]), 15_000, 60_000)
    merge([replace(one, labels=TableLabels(table, one.tids)) for one in (whole, part)], uuid.UUID(int=0))
