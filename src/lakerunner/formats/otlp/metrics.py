"""Convert OTLP metrics to samples and series, with the names and labels of Prometheus' OTLP translation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import Ints
from lakerunner.formats.decoded import Tally, table_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.otlp import attributes_json, metric_metadata, points
from lakerunner.formats.otlp.anyvalue import DuplicateOneof
from lakerunner.formats.otlp.metric_metadata import MetricMetadata, metadata_of
from lakerunner.formats.otlp.nesting import flatten, hex_ids, member, nanos, timestamps, unnest
from lakerunner.formats.otlp.points import Points
from lakerunner.formats.otlp.series import first_of_each, group
from lakerunner.formats.otlp.targets import TARGET_INFO, Targets, info_table, target_info, targets_of
from lakerunner.model.signals.metrics import EXEMPLAR, SAMPLES, SERIES
from lakerunner.model.time import NS_PER_MS

_WITH_TEMPORALITY = (metric_metadata.SUM, metric_metadata.HISTOGRAM, metric_metadata.EXPONENTIAL)


@dataclass(frozen=True, slots=True)
class _Family:
    """All points of the metrics whose points have the same message type."""

    kinds: tuple[int, ...]
    struct: pa.StructArray
    metric_of: Ints


@dataclass(frozen=True, slots=True)
class _Made:
    samples: pa.Table
    series: pa.Table
    resource_of: Ints


def metric_tables(parents: pa.StructArray, limits: Limits, options: Options, tally: Tally) -> dict[str, pa.Table]:
    nest = unnest(parents, "scope_metrics", "metrics")
    targets = targets_of(nest, limits, tally)
    metadata = metadata_of(nest, targets.resource_number[nest.resource_of], targets.scope_number[nest.scope_of])
    tally.reject("metric_without_points", int(_without_points(nest.records, metadata).sum()))
    usable = _usable(metadata)
    made = []
    for family in _families(nest.records):
        kept = usable[family.metric_of]
        tally.reject("metric_without_name_or_temporality", int((~kept).sum()))
        if not kept.all():
            family = _Family(family.kinds, family.struct.filter(pa.array(kept)), family.metric_of[kept])
        if len(family.struct):
            made.append(_make(family, metadata, targets, limits, options, tally))
    if options.metrics.target_info and made:
        made.append(_info(made, targets, options))
    if not made:
        return {table.suffix: table.schema().empty_table() for table in (SAMPLES, SERIES)}
    samples = pa.concat_tables([part.samples for part in made])
    series = pa.concat_tables([part.series for part in made])
    once = first_of_each(series.column("tid").to_numpy())
    return {SAMPLES.suffix: samples, SERIES.suffix: series.filter(pa.array(once))}


def _usable(metadata: MetricMetadata) -> np.ndarray:
    """Return a mask of usable metrics: they need a valid name, and sums and histograms a temporality."""
    named = pc.not_equal(metadata.prometheus_name, "").to_numpy(zero_copy_only=False)
    counted = np.isin(metadata.temporality_code, (metric_metadata.DELTA, metric_metadata.CUMULATIVE))
    usable: np.ndarray = named & (counted | ~np.isin(metadata.kind, _WITH_TEMPORALITY))
    return usable


def _without_points(metrics: pa.StructArray, metadata: MetricMetadata) -> np.ndarray:
    sizes = np.zeros(len(metrics), np.int64)
    for name in metric_metadata.MEMBERS:
        sizes += np.diff(_points(metrics, name).offsets.to_numpy())
    empty: np.ndarray = (sizes == 0) & (
        (metadata.kind < 0) | pc.not_equal(metrics.field("name"), "").to_numpy(zero_copy_only=False)
    )
    return empty


def _points(metrics: pa.StructArray, name: str) -> pa.ListArray:
    return member(metrics.field(name), "data_points")


def _families(metrics: pa.StructArray) -> list[_Family]:
    found = {number: flatten(_points(metrics, name)) for number, name in enumerate(metric_metadata.MEMBERS)}
    gauge, total = found[metric_metadata.GAUGE], found[metric_metadata.SUM]
    # The points of gauges and sums have the same message type, so both are converted in one pass.
    number = (np.concatenate((gauge[0], total[0])), pa.concat_arrays([gauge[1], total[1]]))
    families = [
        _Family((metric_metadata.GAUGE, metric_metadata.SUM), number[1], number[0]),
        *(
            _Family((kind,), found[kind][1], found[kind][0])
            for kind in (metric_metadata.HISTOGRAM, metric_metadata.EXPONENTIAL, metric_metadata.SUMMARY)
        ),
    ]
    return [family for family in families if len(family.struct)]


def _read(family: _Family, metadata: MetricMetadata, tally: Tally) -> Points:
    match family.kinds[0]:
        case metric_metadata.HISTOGRAM:
            return points.histograms(family.struct, family.metric_of, metadata, tally)
        case metric_metadata.EXPONENTIAL:
            return points.exponentials(family.struct, family.metric_of, metadata, tally)
        case metric_metadata.SUMMARY:
            return points.summaries(family.struct)
        case _:
            return points.numbers(family.struct, tally)


def _make(
    family: _Family, metadata: MetricMetadata, targets: Targets, limits: Limits, options: Options, tally: Tally
) -> _Made:
    read = _read(family, metadata, tally)
    metric_of = family.metric_of[read.point]
    started = metadata.kind[family.metric_of] != metric_metadata.GAUGE
    time_ms, bad, absent, start = points.times(family.struct, read.point, started=started)
    every = len(read.point) == len(family.struct) and family.kinds[0] != metric_metadata.SUMMARY
    attributes = family.struct.field("attributes")
    if not every:
        attributes = attributes.take(pa.array(read.point))
    grouped = group(
        attributes, metric_of, read.variant, read.variants, metadata, targets, options.metrics, limits, tally
    )
    of_point = pa.array(grouped.of_point)
    columns = {
        "metric_name": grouped.table.column("metric_name").combine_chunks().take(of_point),
        "tid": pa.array(grouped.tids[grouped.of_point]),
        "timestamp": timestamps(time_ms, "ms"),
        "start_timestamp": start,
        "exemplars": _exemplars(family, read, limits, tally),
        **read.columns,
    }
    samples = table_of(SAMPLES, columns, len(read.point))
    series = grouped.table
    resource_of = metadata.resource_of[metric_of]
    timeless = bad | absent
    if timeless.any():
        tally.reject("time_out_of_range", int(bad.sum()))
        tally.reject("no_timestamp", int(absent.sum()))
        samples, resource_of = samples.filter(pa.array(~timeless)), resource_of[~timeless]
        seen = np.zeros(series.num_rows, np.bool_)
        seen[grouped.of_point[~timeless]] = True
        series = series.filter(pa.array(seen))
    return _Made(samples, series, resource_of)


def _exemplars(family: _Family, read: Points, limits: Limits, tally: Tally) -> pa.Array:
    if family.kinds[0] == metric_metadata.SUMMARY:
        return pa.nulls(len(read.point), pa.list_(EXEMPLAR))
    lists = family.struct.field("exemplars")
    flat = lists.flatten()
    if not len(flat):
        return pa.nulls(len(read.point), pa.list_(EXEMPLAR))
    whole, real = flat.field("as_int"), flat.field("as_double")
    if 2 * len(flat) - whole.null_count - real.null_count > len(flat):
        raise DuplicateOneof
    time_ns, bad = nanos(flat.field("time_unix_nano"))
    children = [
        timestamps(time_ns // NS_PER_MS, "ms", bad | (time_ns == 0)),
        pc.coalesce(real, pc.cast(whole, pa.float64(), safe=False)),
        hex_ids(flat.field("trace_id")),
        hex_ids(flat.field("span_id")),
        attributes_json.objects(flat.field("filtered_attributes"), limits, tally),
    ]
    none = np.diff(lists.offsets.to_numpy()) == 0
    items = pa.StructArray.from_arrays(children, fields=list(EXEMPLAR))
    whole_lists = pa.ListArray.from_arrays(lists.offsets, items, type=pa.list_(EXEMPLAR), mask=pa.array(none))
    return whole_lists.take(pa.array(read.point)) if len(read.point) < len(lists) else whole_lists


def _info(made: list[_Made], targets: Targets, options: Options) -> _Made:
    resource_of = np.concatenate([part.resource_of for part in made])
    columns = [part.samples.column("timestamp").cast(pa.int64()).to_numpy() for part in made]
    sets, series, time_ms = target_info(targets, resource_of, np.concatenate(columns), options.metrics)
    table = info_table(sets, options.metrics.series_key)
    names = pa.array([TARGET_INFO], pa.string()).take(pa.array(np.zeros(len(series), np.int64)))
    samples = table_of(
        SAMPLES,
        {
            "metric_name": names,
            "tid": table.column("tid").combine_chunks().take(pa.array(series)),
            "timestamp": timestamps(time_ms, "ms"),
            "value": pa.array(np.ones(len(series))),
        },
        len(series),
    )
    return _Made(samples, table, series)
