"""Convert points to columns of samples: numbers, histograms, exponential histograms and summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.formats.decoded import Tally
from lakerunner.formats.number_text import float_text
from lakerunner.formats.otlp.anyvalue import DuplicateOneof
from lakerunner.formats.otlp.buckets import Layout, out_of_range, sparse
from lakerunner.formats.otlp.metric_metadata import DELTA, MetricMetadata
from lakerunner.formats.otlp.nesting import counts, nanos, timestamps
from lakerunner.formats.otlp.series import Variants
from lakerunner.model.samples import STALE_BITS
from lakerunner.model.time import NS_PER_MS

#: Prometheus' staleness marker: the NaN that means "the series has ended". Other NaNs are values.
STALE = np.array([STALE_BITS], np.uint64).view(np.float64)[0]
_NO_RECORDED_VALUE = 1
_CUSTOM_BUCKETS = -53
_MIN_SCALE, _MAX_SCALE = -4, 8
#: Prometheus' default where the sender gives no width of the zero bucket.
_ZERO_THRESHOLD = 1e-128
_HINT_UNKNOWN, _HINT_GAUGE = 0, 3

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Points:
    """Samples: the point and variant of each, and the columns that depend on the kind of point."""

    point: Ints
    variant: Ints
    variants: Variants
    columns: Mapping[str, pa.Array]


def numbers(points: pa.StructArray, tally: Tally) -> Points:
    whole, real = points.field("as_int"), points.field("as_double")
    if len(points) - whole.null_count + len(points) - real.null_count > len(points):
        raise DuplicateOneof
    value = pc.coalesce(real, pc.cast(whole, pa.float64(), safe=False)) if whole.null_count < len(points) else real
    stale = _stale(points)
    absent = value.is_null().to_numpy(zero_copy_only=False) & ~stale
    if (absent & stale).any() or absent.any():
        tally.reject("point_without_value", int(absent.sum()))
    kept = np.flatnonzero(~absent)
    values = np.where(stale, STALE, value.to_numpy(zero_copy_only=False))[kept]
    return Points(kept, np.zeros(len(kept), np.int64), Variants(), {"value": pa.array(values, from_pandas=False)})


def histograms(points: pa.StructArray, metric_of: Ints, metadata: MetricMetadata, tally: Tally) -> Points:
    """Convert explicit buckets to native histograms with custom bounds."""
    bounds, filled = points.field("explicit_bounds"), points.field("bucket_counts")
    bound_counts, bucket_counts = counts(bounds), counts(filled)
    stale = _stale(points)
    unbucketed = (bound_counts == 0) & (bucket_counts == 0)
    mismatch = ~unbucketed & (bucket_counts != bound_counts + 1) & ~stale
    disorder = _disordered(bounds, bound_counts) & ~mismatch
    tally.reject("bucket_count_mismatch", int(mismatch.sum()))
    tally.reject("bounds_not_increasing", int(disorder.sum()))
    kept = np.flatnonzero(~(mismatch | disorder))
    chosen = points.take(pa.array(kept)) if len(kept) < len(points) else points
    layout = _custom_layout(chosen, unbucketed[kept], stale[kept])
    columns = _histogram_columns(chosen, stale[kept], metadata.temporality_code[metric_of[kept]])
    columns["h_schema"] = pa.array(np.full(len(kept), _CUSTOM_BUCKETS, np.int8))
    columns["h_positive_spans"] = layout.spans
    columns["h_positive_buckets"] = layout.counts
    columns["h_custom_values"] = chosen.field("explicit_bounds")
    return Points(kept, np.zeros(len(kept), np.int64), Variants(), columns)


def _custom_layout(points: pa.StructArray, unbucketed: Mask, stale: Mask) -> Layout:
    lists = points.field("bucket_counts")
    sizes = counts(lists)
    flat = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    rows = np.repeat(np.arange(len(points)), sizes)
    index = np.arange(len(flat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    flat = np.where(stale[rows], 0.0, flat)
    if unbucketed.any():
        # A histogram of count and sum only: all observations are in the bucket up to infinity.
        alone = np.flatnonzero(unbucketed & ~stale)
        total = points.field("count").to_numpy(zero_copy_only=False).astype(np.float64)[alone]
        rows, index, flat = (
            np.append(rows, alone),
            np.append(index, np.zeros(len(alone), np.int64)),
            np.append(flat, total),
        )
        order = np.argsort(rows, kind="stable")
        rows, index, flat = rows[order], index[order], flat[order]
    return sparse(rows, index, flat, len(points))


def _disordered(bounds: pa.ListArray, sizes: Ints) -> Mask:
    """Return a mask of histograms whose bounds are not finite or not increasing."""
    flat = bounds.flatten().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    wrong = ~np.isfinite(flat)
    wrong[1:] |= (rows[1:] == rows[:-1]) & ~(flat[1:] > flat[:-1])
    return np.bincount(rows[wrong], minlength=len(sizes)) > 0


def exponentials(points: pa.StructArray, metric_of: Ints, metadata: MetricMetadata, tally: Tally) -> Points:
    """Convert exponential buckets. Scales finer than Prometheus' are merged by powers of two, without losing counts."""
    scale = points.field("scale").to_numpy(zero_copy_only=False).astype(np.int64)
    sides = {side: points.field(side) for side in ("positive", "negative")}
    coarse = scale < _MIN_SCALE
    wild = np.zeros(len(points), np.bool_)
    for side in sides.values():
        wild |= out_of_range(_offsets_of(side), counts(side.flatten()[1]))
    tally.reject("exponential_scale_too_small", int(coarse.sum()))
    tally.reject("bucket_index_out_of_range", int((wild & ~coarse).sum()))
    kept = np.flatnonzero(~(coarse | wild))
    chosen = points.take(pa.array(kept)) if len(kept) < len(points) else points
    stale = _stale(chosen)
    columns = _histogram_columns(chosen, stale, metadata.temporality_code[metric_of[kept]])
    columns["h_schema"] = pa.array(np.minimum(scale[kept], _MAX_SCALE).astype(np.int8))
    threshold = chosen.field("zero_threshold").to_numpy(zero_copy_only=False)
    columns["h_zero_threshold"] = pa.array(np.where(threshold > 0, threshold, _ZERO_THRESHOLD))
    zero = chosen.field("zero_count").to_numpy(zero_copy_only=False).astype(np.float64)
    columns["h_zero_count"] = pa.array(np.where(stale, 0.0, zero))
    down = np.maximum(scale[kept] - _MAX_SCALE, 0)
    for name in sides:
        layout = _exponential_layout(chosen.field(name), down, stale)
        columns[f"h_{name}_spans"], columns[f"h_{name}_buckets"] = layout.spans, layout.counts
    return Points(kept, np.zeros(len(kept), np.int64), Variants(), columns)


def _offsets_of(side: pa.StructArray) -> Ints:
    offsets: Ints = pc.fill_null(side.flatten()[0], 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return offsets


def _exponential_layout(side: pa.StructArray, down: Ints, stale: Mask) -> Layout:
    lists = side.flatten()[1]
    sizes = counts(lists)
    flat = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    rows = np.repeat(np.arange(len(side)), sizes)
    place = np.arange(len(flat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # OTLP's bucket 0 begins at 1; Prometheus' bucket 0 ends at 1.
    index = ((_offsets_of(side)[rows] + place) >> down[rows]) + 1
    return sparse(rows, index, np.where(stale[rows], 0.0, flat), len(side))


def _histogram_columns(points: pa.StructArray, stale: Mask, temporality: Ints) -> dict[str, pa.Array]:
    total = points.field("sum")
    absent = total.is_null().to_numpy(zero_copy_only=False) & ~stale
    sums = np.where(stale, STALE, total.fill_null(0.0).to_numpy(zero_copy_only=False))
    count = points.field("count").to_numpy(zero_copy_only=False).astype(np.float64)
    return {
        "h_count": pa.array(np.where(stale, 0.0, count)),
        "h_sum": pa.array(sums, mask=absent, from_pandas=False),
        "h_reset_hint": pa.array(np.where(temporality == DELTA, _HINT_GAUGE, _HINT_UNKNOWN).astype(np.int8)),
    }


def summaries(points: pa.StructArray) -> Points:
    """Convert each point to one sample per quantile, and one each of `_sum` and `_count`."""
    stale = _stale(points)
    lists = points.field("quantile_values")
    sizes = counts(lists)
    owner = np.repeat(np.arange(len(points)), sizes)
    encoded = lists.flatten().field("quantile").dictionary_encode()
    quantiles = [float_text(q) for q in encoded.dictionary.to_pylist()]
    every = np.arange(len(points))
    values = np.concatenate(
        (
            points.field("sum").to_numpy(zero_copy_only=False),
            points.field("count").to_numpy(zero_copy_only=False).astype(np.float64),
            lists.flatten().field("value").to_numpy(zero_copy_only=False),
        )
    )
    point = np.concatenate((every, every, owner))
    variant = np.concatenate(
        (np.zeros(len(every)), np.ones(len(every)), encoded.indices.to_numpy(zero_copy_only=False) + 2)
    ).astype(np.int64)
    variants = Variants(("_sum", "_count", *("" for _ in quantiles)), ("", "", *quantiles))
    return Points(
        point, variant, variants, {"value": pa.array(np.where(stale[point], STALE, values), from_pandas=False)}
    )


def times(points: pa.StructArray, kept: Ints, *, started: Mask) -> tuple[Ints, Mask, Mask, pa.Array]:
    """Return the samples' times in milliseconds, masks of those out of range and without one, and the start times."""
    at_ns, bad = nanos(points.field("time_unix_nano"))
    start_ns, start_bad = nanos(points.field("start_time_unix_nano"))
    absent = (start_ns == 0) | start_bad | ~started
    start = timestamps(start_ns // NS_PER_MS, "ms", absent)
    return (at_ns // NS_PER_MS)[kept], bad[kept], (at_ns == 0)[kept], start.take(pa.array(kept))


def _stale(points: pa.StructArray) -> Mask:
    flags = points.field("flags").to_numpy(zero_copy_only=False)
    stale: Mask = (flags & _NO_RECORDED_VALUE) != 0
    return stale
