"""Writes the samples of an evaluation as segments of metrics, which nobody sees before its commit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.formats.decoded import table_of
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS, SAMPLES, SERIES, SPAN
from lakerunner.pipeline.split import parts
from lakerunner.pipeline.write_part import write_part
from lakerunner.query.series.batch import STALE
from lakerunner.query.series.histograms.histogram import Histogram, Ints
from lakerunner.rules.evaluation.vector import Sample
from lakerunner.store.object_store import ObjectStore

#: The collector of what rules make, as segments and paths name it.
COLLECTOR = "ruler"


@dataclass(frozen=True, slots=True)
class Written:
    """Samples of one rule and the series that ended, at one time."""

    samples: Sequence[Sample]
    ended: Sequence[LabelSet]
    time_ms: int
    description: str


def write_results(
    org_id: uuid.UUID, written: Sequence[Written], store: ObjectStore, series_key: bytes
) -> list[Segment]:
    """The segments of these samples. Of two samples of a series at one time, the first counts."""
    rows: dict[tuple[LabelSet, int], tuple[float, Histogram | None, str]] = {}
    for one in written:
        for sample in one.samples:
            rows.setdefault((sample.labels, one.time_ms), (sample.value, sample.histogram, one.description))
    for one in written:
        for labels in one.ended:
            rows.setdefault((labels, one.time_ms), (float("nan"), None, ""))
    if not rows:
        return []
    tables = {SAMPLES.suffix: _samples(rows, series_key), SERIES.suffix: _series(rows, series_key)}
    now_ns = time.time_ns()
    return [write_part(org_id, COLLECTOR, METRICS, part, store, now_ns) for part in parts(METRICS, tables, now_ns)]


_Rows = dict[tuple[LabelSet, int], tuple[float, Histogram | None, str]]


def _samples(rows: _Rows, series_key: bytes) -> pa.Table:
    keys, values = list(rows), list(rows.values())
    hists = [histogram for _, histogram, _ in values]
    held = np.array([histogram is not None for histogram in hists])
    ended = np.array([histogram is None and not description for _, histogram, description in values])
    numbers = np.array([value for value, _, _ in values], np.float64)
    # The stale marker is one NaN of many, so it is copied bit by bit.
    numbers.view(np.uint64)[ended] = np.float64(STALE).view(np.uint64)
    times = pa.array([time_ms for _, time_ms in keys], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    columns = {
        "metric_name": pa.array([labels.get(METRIC_NAME) for labels, _ in keys], pa.string()),
        "tid": pa.array([labels.tid(series_key) for labels, _ in keys], pa.int64()),
        "timestamp": times,
        "value": pa.array(numbers, mask=held, from_pandas=False),
        **(histogram_columns(hists) if held.any() else {}),
    }
    return table_of(SAMPLES, columns, len(keys))


def _series(rows: _Rows, series_key: bytes) -> pa.Table:
    described = {labels: description for (labels, _), (_, _, description) in rows.items()}
    labels = list(described)
    columns = {
        "tid": pa.array([each.tid(series_key) for each in labels], pa.int64()),
        "metric_name": pa.array([each.get(METRIC_NAME) for each in labels], pa.string()),
        "type": pa.array(["unknown"] * len(labels), pa.string()),
        "description": pa.array(list(described.values()), pa.string()),
        "labels": pa.array([list(each.without(METRIC_NAME)) for each in labels], pa.map_(pa.string(), pa.string())),
    }
    return table_of(SERIES, columns, len(labels))


def histogram_columns(hists: Sequence[Histogram | None]) -> dict[str, pa.Array]:
    """Histograms as columns of samples: their arrays are joined, and cut by offsets.

    10,000 histograms of 40 buckets take 40 ms of CPU time, and took 185 when each became lists of its own (2026-11-17).
    Values go by way of numpy, which keeps the bits of a stale marker.
    """
    absent = np.array([hist is None for hist in hists], bool)
    known = [_NONE if hist is None else hist for hist in hists]

    def of(name: str, kind: pa.DataType) -> pa.Array:
        values = np.array([getattr(hist, name) for hist in known], np.float64)
        return pa.array(values, mask=absent, from_pandas=False).cast(kind)

    def lists(name: str) -> pa.Array:
        arrays = [getattr(hist, name) for hist in known]
        return _cut(pa.array(_joined(arrays, np.float64), from_pandas=False), _lengths(arrays), absent)

    def spans(name: str) -> pa.Array:
        arrays = [getattr(hist, name) for hist in known]
        return _spans(_joined(arrays, np.int64), _lengths(arrays), absent)

    return {
        "h_schema": of("schema", pa.int8()),
        "h_zero_threshold": of("zero_threshold", pa.float64()),
        "h_zero_count": of("zero_count", pa.float64()),
        "h_count": of("count", pa.float64()),
        "h_sum": of("sum", pa.float64()),
        "h_positive_spans": spans("pos_index"),
        "h_positive_buckets": lists("pos_count"),
        "h_negative_spans": spans("neg_index"),
        "h_negative_buckets": lists("neg_count"),
        "h_custom_values": lists("bounds"),
        "h_reset_hint": of("hint", pa.int8()),
    }


_NONE = Histogram()


def _joined(arrays: Sequence[Sequence[float] | Ints], kind: type[np.generic]) -> np.ndarray:
    return np.concatenate([np.asarray(each, kind) for each in arrays]) if arrays else np.zeros(0, kind)


def _lengths(arrays: Sequence[Sequence[float] | Ints]) -> Ints:
    return np.fromiter((len(each) for each in arrays), np.int64, len(arrays))


def _cut(values: pa.Array, lengths: Ints, absent: np.ndarray) -> pa.Array:
    """A list per row; null where the row has no histogram."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    # An offset that is null makes a null list.
    return pa.ListArray.from_arrays(pa.array(ends, mask=np.append(absent, False)), values)


def _spans(index: Ints, lengths: Ints, absent: np.ndarray) -> pa.Array:
    """Indexes of buckets as spans: how far each begins after the end of the one before, and its length."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    before = np.concatenate([[0], index[:-1]]) if len(index) else index
    first = np.concatenate([[True], row[1:] != row[:-1]]) if len(index) else np.zeros(0, bool)
    starts = np.flatnonzero(first | (index != before + 1))
    offsets = np.where(first, index, index - before - 1)[starts]
    sizes = np.diff(np.append(starts, len(index)))
    fields = [pa.array(values).cast(field.type) for values, field in zip((offsets, sizes), SPAN, strict=True)]
    structs = pa.StructArray.from_arrays(fields, fields=list(SPAN))
    return _cut(structs, np.bincount(row[starts], minlength=len(lengths)), absent)
