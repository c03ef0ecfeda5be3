"""A rollup written for reading: plain Python over one sample at a time. The real one must agree with it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.samples import STALE_BITS
from lakerunner.model.signals.metrics import SAMPLES

STALE = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]
#: Bucket index -> count.
Buckets = dict[int, float]


@dataclass(frozen=True)
class Histogram:
    count: float
    total: float | None
    zero: float = 0.0
    positive: Buckets = field(default_factory=dict)
    negative: Buckets = field(default_factory=dict)
    schema: int = 3
    hint: int = 0


@dataclass(frozen=True)
class Sample:
    tid: int
    time: int
    value: float | Histogram
    start: int = 0

    @property
    def is_stale(self) -> bool:
        number = self.value.total if isinstance(self.value, Histogram) else self.value
        return number is not None and bits(number) == STALE_BITS


def bits(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])


def table_of(samples: list[Sample]) -> pa.Table:
    """The samples as ingest writes them."""
    rows = [_row(sample) for sample in sorted(samples, key=lambda each: (each.tid, each.time))]
    columns = []
    for column in SAMPLES.columns:
        values = [row.get(column.name) for row in rows]
        if column.type == pa.float64():
            # Not from a list: Python may change the bits of a NaN.
            numbers = np.array([bits(0.0 if each is None else each) for each in values], np.uint64).view(np.float64)
            mask = np.array([each is None for each in values], np.bool_)
            columns.append(pa.array(numbers, mask=mask, from_pandas=False))
        else:
            columns.append(pa.array(values, column.type))
    return pa.Table.from_arrays(columns, schema=SAMPLES.schema())


def _row(sample: Sample) -> dict[str, Any]:
    row: dict[str, Any] = {
        "metric_name": f"metric_{sample.tid // 2}", "tid": sample.tid, "timestamp": sample.time,
        "start_timestamp": sample.start or None,
    }  # fmt: skip
    if not isinstance(sample.value, Histogram):
        return {**row, "value": sample.value}
    h = sample.value
    row |= {"h_schema": h.schema, "h_count": h.count, "h_sum": h.total, "h_reset_hint": h.hint}
    row |= {"h_zero_threshold": 1e-128, "h_zero_count": h.zero}
    for side, buckets in (("positive", h.positive), ("negative", h.negative)):
        row[f"h_{side}_spans"], row[f"h_{side}_buckets"] = _spans(buckets)
    return row


def _spans(buckets: Buckets) -> tuple[list[dict[str, int]], list[float]]:
    spans: list[dict[str, int]] = []
    reached = 0
    for index in sorted(buckets):
        if spans and index == reached:
            spans[-1]["length"] += 1
        else:
            spans.append({"offset": index - reached, "length": 1})
        reached = index + 1
    return spans, [buckets[index] for index in sorted(buckets)]


@dataclass(frozen=True)
class Expected:
    """One kept row: its sample, and the aggregates of its bucket if it carries them."""

    tid: int
    time: int
    aggregates: dict[str, Any] | None


def rolled_up(samples: list[Sample], tier_s: int) -> list[Expected]:
    width = tier_s * 1000
    ordered = sorted(samples, key=lambda each: (each.tid, each.time))
    buckets = groupby(ordered, key=lambda each: (each.tid, -(-each.time // width)))
    return [row for _, bucket in buckets for part in _regular(list(bucket)) for row in _bucket(part)]


def _regular(samples: list[Sample]) -> list[list[Sample]]:
    """The bucket, or each sample alone where numbers and histograms, or unlike histograms, are mixed."""
    live = [each.value for each in samples if not each.is_stale]
    histograms = [value for value in live if isinstance(value, Histogram)]
    layouts = {(each.schema, each.hint, each.total is None) for each in histograms}
    is_irregular = len(layouts) > 1 or 0 < len(histograms) < len(live)
    return [[each] for each in samples] if is_irregular else [samples]


def _bucket(samples: list[Sample]) -> Iterator[Expected]:
    live = [each for each in samples if not each.is_stale]
    numbers = [each for each in live if not isinstance(each.value, Histogram)]
    histograms = [each for each in live if isinstance(each.value, Histogram)]
    kept = {each.time for group in (numbers, histograms) for each in (group[:1] + group[-1:])}
    for before, after in pairwise(histograms):
        if not _continues(before, after):
            kept |= {before.time, after.time}
    if samples[-1].is_stale:
        kept.add(samples[-1].time)
    for each in samples:
        if each.time in kept:
            carries = bool(live) and each is live[-1]
            yield Expected(each.tid, each.time, _aggregates(live, numbers) if carries else None)


def _continues(before: Sample, after: Sample) -> bool:
    p, j = before.value, after.value
    assert isinstance(p, Histogram) and isinstance(j, Histogram)
    if before.start != after.start or p.schema != j.schema or p.hint != j.hint or j.hint == 1:
        return False
    if (p.total is None) != (j.total is None) or (p.total or 0.0) > (j.total or 0.0):
        return False
    grows = p.count <= j.count and p.zero <= j.zero
    for older, newer in ((p.positive, j.positive), (p.negative, j.negative)):
        grows &= all(newer.get(index, 0.0) >= count for index, count in older.items())
    return grows


def _aggregates(live: list[Sample], samples: list[Sample]) -> dict[str, Any]:
    values = [each.value for each in samples if not isinstance(each.value, Histogram)]
    if not values:
        return {"count": len(live)}
    resets = sum(p.value for p, j in pairwise(samples) if _restarted(p, j))  # type: ignore[misc]
    real = [value for value in values if not math.isnan(value)]
    return {
        "count": len(live),
        "sum": math.fsum(values) if len(real) == len(values) and all(map(math.isfinite, values)) else sum(values),
        "min": min(real) if real else math.nan,
        "max": max(real) if real else math.nan,
        "first": values[0],
        "first_timestamp": samples[0].time,
        "last": values[-1],
        "increase": values[-1] - values[0] + resets,
        "resets": resets,
        "values": sorted(real),
    }


def _restarted(p: Sample, j: Sample) -> bool:
    """As in Prometheus: the value fell, or the start timestamp says so."""
    assert not isinstance(p.value, Histogram) and not isinstance(j.value, Histogram)
    if j.value < p.value:
        return True
    if j.start == 0 or j.start >= j.time or j.start < p.time:
        return False
    return j.start > p.time or (p.start != 0 and p.start < p.time)
