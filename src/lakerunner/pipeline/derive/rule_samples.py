"""The metrics that materialization rules make: samples and series of their buckets, of all rules in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.formats.decoded import table_of
from lakerunner.formats.otlp.buckets import sparse
from lakerunner.formats.otlp.labels import Rank, Source, label_sets
from lakerunner.model import distinct
from lakerunner.model.compute import Compute
from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.series_of_day import SeriesOfDay
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.pipeline.derive.buckets import (
    BUCKETS_PER_DAY,
    SCHEMA,
    STEP_MS,
    ZERO_THRESHOLD,
    Buckets,
    cells_of,
)
from lakerunner.pipeline.derive.evaluate import SLOTS, Derived
from lakerunner.pipeline.derive.selected import Floats, Ints
from lakerunner.rules.definitions import Materialize
from lakerunner.rules.matches import dimension_labels

_GAUGES = (Compute.MIN, Compute.MAX)


@dataclass(frozen=True, slots=True)
class Found:
    """What one version of a rule found in the rows of a task."""

    rule: Materialize
    version: int
    buckets: Buckets
    rule_id: int = 0


def samples_of(found: Sequence[Found], slot: int, series_key: bytes) -> Derived | None:
    """One sample per series and bucket; the slot sets its time, so that samples of other tasks have other times."""
    if not 0 <= slot < SLOTS:
        raise ValueError(f"slot {slot} is none of {SLOTS}")
    numbers = [each for each in found if not each.rule.compute.is_distribution]
    histograms = [each for each in found if each.rule.compute.is_distribution]
    tables = [_tables(some, slot, series_key) for some in (numbers, histograms) if some]
    if not tables:
        return None
    buckets = np.concatenate([each.buckets.bucket for each in found])
    samples, series = zip(*tables, strict=True)
    return Derived(pa.concat_tables(samples), pa.concat_tables(series), tuple(np.unique(buckets).tolist()))


def series_of_days(found: Sequence[Found], made: Derived) -> tuple[SeriesOfDay, ...]:
    """The series that `samples_of` made of each rule, by day."""
    tids = made.series.column("tid").to_numpy()
    days: list[SeriesOfDay] = []
    start = 0
    for each in sorted(found, key=lambda one: one.rule.compute.is_distribution):
        buckets = each.buckets
        own = tids[start : start + buckets.series_count]
        start += buckets.series_count
        day = buckets.bucket // BUCKETS_PER_DAY
        first, last = int(day.min()), int(day.max())
        for one in range(first, last + 1):
            some = own if first == last else own[np.unique(buckets.series[day == one])]
            if len(some):
                days.append(SeriesOfDay.of(each.rule_id, one, some))
    return tuple(days)


def _type(compute: Compute) -> str:
    return "gauge" if compute in _GAUGES else "histogram" if compute.is_distribution else "counter"


def _tables(found: Sequence[Found], slot: int, series_key: bytes) -> tuple[pa.Table, pa.Table]:
    """Samples and series of rules whose metrics are all histograms, or none is."""
    series = _series(found, series_key)
    offsets = np.cumsum([0, *(each.buckets.series_count for each in found[:-1])])
    sizes = [len(each.buckets.series) for each in found]
    owner = np.concatenate([each.buckets.series + at for each, at in zip(found, offsets, strict=True)])
    time_ms = np.concatenate([each.buckets.bucket for each in found]) * STEP_MS + 2 + 2 * slot
    names = pa.array([each.rule.name for each in found], pa.string())
    columns = {
        "metric_name": names.take(pa.array(np.repeat(np.arange(len(found)), sizes))),
        "tid": pa.array(series.column("tid").to_numpy()[owner]),
        "timestamp": pa.array(time_ms, pa.timestamp("ms", "UTC")),
    }
    if found[0].rule.compute.is_distribution:
        columns |= _histograms(found)
    else:
        columns["value"] = pa.array(np.concatenate([_value(each.rule.compute, each.buckets) for each in found]))
    is_gauge = np.repeat([each.rule.compute in _GAUGES for each in found], sizes)
    columns["start_timestamp"] = pa.array(time_ms - 1, pa.timestamp("ms", "UTC"), mask=is_gauge)
    return table_of(SAMPLES, columns, len(owner)), series


def _value(compute: Compute, found: Buckets) -> Floats:
    match compute:
        case Compute.COUNT:
            return found.count
        case Compute.MIN:
            return found.least
        case Compute.MAX:
            return found.most
    return found.total


def _histograms(found: Sequence[Found]) -> dict[str, pa.Array]:
    made = [_histogram(each.buckets, each.rule.compute) for each in found]
    return {name: pa.concat_arrays([each[name] for each in made]) for name in made[0]}


def _histogram(found: Buckets, compute: Compute) -> dict[str, pa.Array]:
    size = len(found.series)
    positive, zeros, negative = cells_of(found)
    schema, zero_threshold = SCHEMA, ZERO_THRESHOLD
    if compute is Compute.DISTINCT:
        positive = distinct.highest(*positive)
        schema, zero_threshold = distinct.SCHEMA, distinct.ZERO_THRESHOLD
    columns = {
        "h_schema": pa.array(np.full(size, schema, np.int8)),
        "h_zero_threshold": pa.array(np.full(size, zero_threshold)),
        "h_zero_count": pa.array(zeros),
        "h_count": pa.array(found.count),
        "h_sum": pa.array(found.total),
        "h_reset_hint": pa.array(np.zeros(size, np.int8)),
    }
    for name, cells in (("positive", positive), ("negative", negative)):
        layout = sparse(*cells, size)
        columns[f"h_{name}_spans"], columns[f"h_{name}_buckets"] = layout.spans, layout.counts
    return columns


def _series(found: Sequence[Found], series_key: bytes) -> pa.Table:
    counts = [each.buckets.series_count for each in found]
    total = sum(counts)
    every, zeros = np.arange(total), np.zeros(total, np.int64)
    of_rule: Ints = np.repeat(np.arange(len(found)), counts)
    names = pa.array([each.rule.name for each in found], pa.string())
    sources = [Source(Rank.NAME, every, [METRIC_NAME], zeros, names, of_rule)]
    start = 0
    for each, count in zip(found, counts, strict=True):
        own = every[start : start + count]
        nothing = zeros[:count]
        for (_, label), values in zip(dimension_labels(each.rule), each.buckets.labels, strict=True):
            sources.append(Source(Rank.ATTRIBUTE, own, [label], nothing, values, own - start))
        for label, value in sorted(each.rule.labels.items()):
            sources.append(Source(Rank.ATTRIBUTE, own, [label], nothing, pa.array([value]), nothing))
        start += count
    sets = label_sets(sources, total, series_key)

    def of_each(text: Callable[[Found], str | None]) -> pa.Array:
        return pa.array([text(each) for each in found], pa.string()).take(pa.array(of_rule))

    is_gauge = np.array([each.rule.compute in _GAUGES for each in found])[of_rule]
    own_names = of_each(lambda each: each.rule.name)
    columns = {
        "tid": pa.array(sets.tids),
        "metric_name": own_names,
        "otel_name": own_names,
        "type": of_each(lambda each: _type(each.rule.compute)),
        "unit": of_each(lambda _: ""),
        "description": of_each(_description),
        "temporality": of_each(lambda each: None if each.rule.compute in _GAUGES else "delta"),
        "monotonic": pa.array(np.ones(total, np.bool_), mask=is_gauge),
        "labels": sets.labels,
    }
    return table_of(SERIES, columns, total)


def _description(found: Found) -> str:
    rule = found.rule
    what = f"{rule.compute}({rule.field})" if rule.field else str(rule.compute)
    return f"Derived by the rule {rule.name}, version {found.version}: {what} of {rule.match}"
