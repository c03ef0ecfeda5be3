"""The metric that a materialization rule makes: samples and series of its buckets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.formats.decoded import table_of
from lakerunner.formats.otlp.buckets import sparse
from lakerunner.formats.otlp.labels import Rank, Source, label_sets
from lakerunner.model.compute import Compute
from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.pipeline.derive.buckets import SCHEMA, STEP_MS, ZERO_THRESHOLD, Buckets, cells_of
from lakerunner.pipeline.derive.evaluate import SLOTS, Derived
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.matches import dimension_labels

_GAUGES = (Compute.MIN, Compute.MAX)


def samples_of(rule: Materialize, version: int, found: Buckets, slot: int, series_key: bytes) -> Derived:
    """One sample per series and bucket; the slot sets its time, so that samples of other tasks have other times."""
    if not 0 <= slot < SLOTS:
        raise ValueError(f"slot {slot} is none of {SLOTS}")
    series = _series(rule, version, found, series_key)
    size = len(found.series)
    time_ms = found.bucket * STEP_MS + 2 + 2 * slot
    columns = {
        "metric_name": pa.array([rule.name], pa.string()).take(pa.array(np.zeros(size, np.int64))),
        "tid": pa.array(series.column("tid").to_numpy()[found.series]),
        "timestamp": pa.array(time_ms).cast(pa.timestamp("ms", "UTC")),
        **_values(rule.compute, found),
    }
    if rule.compute not in _GAUGES:
        columns["start_timestamp"] = pa.array(time_ms - 1).cast(pa.timestamp("ms", "UTC"))
    intervals = tuple(np.unique(found.bucket).tolist())
    return Derived(table_of(SAMPLES, columns, size), series, intervals)


def _values(compute: Compute, found: Buckets) -> dict[str, pa.Array]:
    match compute:
        case Compute.COUNT:
            return {"value": pa.array(found.count)}
        case Compute.BYTES | Compute.SUM:
            return {"value": pa.array(found.total)}
        case Compute.MIN:
            return {"value": pa.array(found.least)}
        case Compute.MAX:
            return {"value": pa.array(found.most)}
    size = len(found.series)
    positive, zeros, negative = cells_of(found)
    columns = {
        "h_schema": pa.array(np.full(size, SCHEMA, np.int8)),
        "h_zero_threshold": pa.array(np.full(size, ZERO_THRESHOLD)),
        "h_zero_count": pa.array(zeros),
        "h_count": pa.array(found.count),
        "h_sum": pa.array(found.total),
        "h_reset_hint": pa.array(np.zeros(size, np.int8)),
    }
    for name, cells in (("positive", positive), ("negative", negative)):
        layout = sparse(*cells, size)
        columns[f"h_{name}_spans"], columns[f"h_{name}_buckets"] = layout.spans, layout.counts
    return columns


def _series(rule: Materialize, version: int, found: Buckets, series_key: bytes) -> pa.Table:
    count = found.series_count
    every, zeros = np.arange(count), np.zeros(count, np.int64)
    sources = [Source(Rank.NAME, every, [METRIC_NAME], zeros, pa.array([rule.name]), zeros)]
    for (_, label), values in zip(dimension_labels(rule), found.labels, strict=True):
        sources.append(Source(Rank.ATTRIBUTE, every, [label], zeros, values, every))
    for label, value in sorted(rule.labels.items()):
        sources.append(Source(Rank.ATTRIBUTE, every, [label], zeros, pa.array([value]), zeros))
    sets = label_sets(sources, count, series_key)

    def same(text: str) -> pa.Array:
        return pa.array([text], pa.string()).take(pa.array(zeros))

    is_gauge = rule.compute in _GAUGES
    kind = "gauge" if is_gauge else "histogram" if rule.compute is Compute.HISTOGRAM else "counter"
    what = f"{rule.compute}({rule.field})" if rule.field else str(rule.compute)
    columns = {
        "tid": pa.array(sets.tids),
        "metric_name": same(rule.name),
        "otel_name": same(rule.name),
        "type": same(kind),
        "unit": same(""),
        "description": same(f"Derived by the rule {rule.name}, version {version}: {what} of {rule.match}"),
        "labels": sets.labels,
    }
    if not is_gauge:
        columns |= {"temporality": same("delta"), "monotonic": pa.array(np.ones(count, np.bool_))}
    return table_of(SERIES, columns, count)
