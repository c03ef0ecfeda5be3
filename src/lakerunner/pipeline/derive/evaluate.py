"""Evaluates rules over rows: groups them by dimensions and time, and makes samples and series of delta metrics.

A sample counts the rows of one task, series and interval of `STEP_MS`, and so it is a delta: it begins one millisecond
before its own time. `rate` and `increase` treat such a start as a reset, so they add up the samples of all tasks, in
whatever order these arrive. Two samples of a series never have the same time, because each task has a slot of its own
within the interval (`index/derived_slots.py` makes sure of it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.decoded import table_of
from lakerunner.formats.otlp.buckets import sparse
from lakerunner.formats.otlp.labels import Rank, Source, label_sets
from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from lakerunner.pipeline.derive.buckets import STEP_MS, bucket_of
from lakerunner.pipeline.derive.rule import Dimension, Kind, Measure, Rule

#: Slots of an interval. Samples have even offsets, so that a sample's start is never another one's time.
SLOTS = STEP_MS // 2 - 1
OVERFLOW = "__overflow__"
#: Native histograms have eight buckets per power of two: an error of quantiles below 5%.
_SCHEMA = 3
_PER_DOUBLING = 1 << _SCHEMA
_ZERO_THRESHOLD = 2.0**-128
#: Up to so many cells per row, they are counted in a table; more are sorted.
_DENSE = 16

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Derived:
    """Tables of metrics, and the intervals in which they have samples, in units of `STEP_MS`."""

    samples: pa.Table
    series: pa.Table
    intervals: tuple[int, ...]


def evaluate(rules: Sequence[Rule], rows: pa.Table, times_ns: Ints, slot: int, series_key: bytes) -> Derived | None:
    """What the rules make of rows; None if that is nothing."""
    if not 0 <= slot < SLOTS:
        raise ValueError(f"slot {slot} is none of {SLOTS}")
    samples: list[pa.Table] = []
    series: list[pa.Table] = []
    intervals: set[int] = set()
    for rule in rules:
        chosen = _chosen(rows, rule)
        table = rows if chosen is None else rows.filter(pa.array(chosen))
        if not table.num_rows:
            continue
        grouped = _Groups.of(rule, table, times_ns if chosen is None else times_ns[chosen])
        intervals.update(np.unique(grouped.interval).tolist())
        for measure in rule.measures:
            made = grouped.measured(measure, table, slot, series_key)
            if made is not None:
                samples.append(made[0])
                series.append(made[1])
    if not samples:
        return None
    return Derived(pa.concat_tables(samples), pa.concat_tables(series), tuple(sorted(intervals)))


def _chosen(rows: pa.Table, rule: Rule) -> npt.NDArray[np.bool_] | None:
    """The rows of the rule; None if they are all rows."""
    mask: npt.NDArray[np.bool_] | None = None
    for column, values in rule.where.items():
        if column not in rows.column_names:
            return np.zeros(rows.num_rows, np.bool_)
        found = _has_value(rows.column(column), values)
        mask = found if mask is None else mask & found
    return mask


def _has_value(column: pa.ChunkedArray, values: Iterable[str]) -> npt.NDArray[np.bool_]:
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    found: npt.NDArray[np.bool_] = pc.is_in(plain, value_set=pa.array(list(values), pa.string())).to_numpy()
    return found


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows grouped by series (without the metric) and interval."""

    labels: tuple[str, ...]
    #: One column of values per label, one element per series.
    values: tuple[pa.Array, ...]
    #: The group of each row; the series and interval of each group.
    of_row: Ints
    series: Ints
    interval: Ints

    @classmethod
    def of(cls, rule: Rule, rows: pa.Table, times_ns: Ints) -> _Groups:
        encoded = [_encoded(rows, dimension) for dimension in rule.dimensions]
        series, first = _numbered([codes for codes, _ in encoded])
        values = [words.take(pa.array(codes[first])) for codes, words in encoded]
        if len(first) > rule.max_series:
            series, values = _capped(series, values, rule.max_series)
        interval = bucket_of(times_ns)
        low = int(interval.min())
        of_row, firsts = _numbered([series, interval - low])
        labels = tuple(dimension.label for dimension in rule.dimensions)
        return cls(labels, tuple(values), of_row, series[firsts], interval[firsts])

    def measured(
        self, measure: Measure, rows: pa.Table, slot: int, series_key: bytes
    ) -> tuple[pa.Table, pa.Table] | None:
        """Samples and series of one metric."""
        of_row = self.of_row
        if measure.only is not None:
            column, value = measure.only
            kept = _has_value(rows.column(column), (value,))
            if not kept.any():
                return None
            of_row, rows = of_row[kept], rows.filter(pa.array(kept))
        size = len(self.series)
        counts = np.bincount(of_row, minlength=size).astype(np.float64)
        amounts = None
        if measure.column:
            amounts = rows.column(measure.column).to_numpy().astype(np.float64) * measure.scale
        if measure.kind is Kind.HISTOGRAM:
            assert amounts is not None
            columns = _histograms(of_row, np.maximum(amounts, 0.0), counts, size)
        else:
            total = counts if amounts is None else np.bincount(of_row, weights=amounts, minlength=size)
            columns = {"value": pa.array(total)}
        present = counts > 0
        table = self._series(measure, series_key)
        tids = table.column("tid").to_numpy()
        time_ms = self.interval * STEP_MS + 2 + 2 * slot
        names = pa.array([measure.metric], pa.string()).take(pa.array(np.zeros(size, np.int64)))
        samples = table_of(
            SAMPLES,
            {
                "metric_name": names,
                "tid": pa.array(tids[self.series]),
                "timestamp": pa.array(time_ms).cast(pa.timestamp("ms", "UTC")),
                "start_timestamp": pa.array(time_ms - 1).cast(pa.timestamp("ms", "UTC")),
                **columns,
            },
            size,
        )
        if present.all():
            return samples, table
        used = np.zeros(table.num_rows, np.bool_)
        used[self.series[present]] = True
        return samples.filter(pa.array(present)), table.filter(pa.array(used))

    def _series(self, measure: Measure, series_key: bytes) -> pa.Table:
        count = len(self.values[0])
        all_series = np.arange(count)
        zeros = np.zeros(count, np.int64)
        sources = [Source(Rank.NAME, all_series, [METRIC_NAME], zeros, pa.array([measure.metric]), zeros)]
        for label, values in zip(self.labels, self.values, strict=True):
            sources.append(Source(Rank.ATTRIBUTE, all_series, [label], zeros, values, all_series))
        sets = label_sets(sources, count, series_key)

        def same(text: str) -> pa.Array:
            return pa.array([text], pa.string()).take(pa.array(zeros))

        columns = {
            "tid": pa.array(sets.tids),
            "metric_name": same(measure.metric),
            "otel_name": same(measure.metric),
            "type": same(str(measure.kind)),
            "unit": same(measure.unit),
            "description": same(measure.description),
            "temporality": same("delta"),
            "monotonic": pa.array(np.ones(count, np.bool_)),
            "labels": sets.labels,
        }
        return table_of(SERIES, columns, count)


def _encoded(rows: pa.Table, dimension: Dimension) -> tuple[Ints, pa.Array]:
    """A code for each row, and the label values of the codes. A missing value is the empty text."""
    if dimension.column not in rows.column_names:
        return np.zeros(rows.num_rows, np.int64), pa.array([""], pa.string())
    column = rows.column(dimension.column).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        encoded = column
    else:
        if not pa.types.is_string(column.type):
            column = pc.cast(column, pa.string())
        encoded = column.dictionary_encode()
    words = [dimension.words.get(word, word) for word in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, pa.array([*words, ""], pa.string())


def _numbered(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Number the distinct rows of these columns; return the number of each row, and the first row of each number."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        width = int(column.max()) + 1 if len(column) else 1
        if len(key) and int(key.max()) >= (1 << 62) // width:
            key = pa.array(key).dictionary_encode().indices.to_numpy().astype(np.int64)
        key = key * width + column
    numbers = pa.array(key).dictionary_encode().indices.to_numpy().astype(np.int64)
    first = np.full(int(numbers.max()) + 1 if len(numbers) else 0, len(numbers), np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]
    return numbers, first


def _capped(series: Ints, values: list[pa.Array], most: int) -> tuple[Ints, list[pa.Array]]:
    """Keep the series with the most rows. The others become one per value of the first dimension."""
    rows = np.bincount(series)
    kept = np.zeros(len(rows), np.bool_)
    kept[np.argsort(-rows, kind="stable")[:most]] = True
    other = pa.array([OVERFLOW] * len(rows), pa.string())
    changed = [values[0], *(pc.if_else(pa.array(kept), each, other) for each in values[1:])]
    codes = [each.dictionary_encode().indices.to_numpy().astype(np.int64) for each in changed]
    numbers, first = _numbered(codes)
    return numbers[series], [each.take(pa.array(first)) for each in changed]


def _tallied(cells: Ints, size: int) -> tuple[Ints, Ints]:
    """The distinct cells, ascending, and how often each occurs."""
    if size > _DENSE * len(cells) + _DENSE:
        return np.unique(cells, return_counts=True)
    counts = np.bincount(cells, minlength=size)
    found = np.flatnonzero(counts)
    return found, counts[found]


def _histograms(
    of_row: Ints, amounts: npt.NDArray[np.float64], counts: npt.NDArray[np.float64], size: int
) -> dict[str, pa.Array]:
    positive = amounts > _ZERO_THRESHOLD
    index = np.ceil(np.log2(amounts[positive]) * _PER_DOUBLING).astype(np.int64)
    group = of_row[positive]
    low = int(index.min()) if len(index) else 0
    width = int(index.max()) - low + 1 if len(index) else 1
    cells, tally = _tallied(group * width + (index - low), size * width)
    layout = sparse(cells // width, cells % width + low, tally.astype(np.float64), size)
    zeros = np.bincount(of_row[~positive], minlength=size).astype(np.float64)
    return {
        "h_schema": pa.array(np.full(size, _SCHEMA, np.int8)),
        "h_zero_threshold": pa.array(np.full(size, _ZERO_THRESHOLD)),
        "h_zero_count": pa.array(zeros),
        "h_count": pa.array(counts),
        "h_sum": pa.array(np.bincount(of_row, weights=amounts, minlength=size)),
        "h_positive_spans": layout.spans,
        "h_positive_buckets": layout.counts,
        "h_reset_hint": pa.array(np.zeros(size, np.int8)),
    }
