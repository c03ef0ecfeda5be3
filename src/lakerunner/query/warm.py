"""Loads the compiled kernels of scans and of every language before the first client would wait for them."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.signals.metrics import SERIES
from lakerunner.query.languages import MODULES, language
from lakerunner.query.scan.samples.decoded import choose, decoded
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.series_table import SeriesTable, TableLabels
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
    _loaded = True
    log().info("kernels loaded", seconds=round(time.monotonic() - began_s, 2))


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
