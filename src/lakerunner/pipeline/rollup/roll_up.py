"""Rolling samples up: per series and bucket of time, the first and last sample stay, with aggregates of all.

Pure: a table in, a table out. docs/rollups.md says what is kept and why.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from lakerunner.model.errors import BadInput
from lakerunner.model.samples import STALE_BITS
from lakerunner.model.segment import RAW_TIER_S
from lakerunner.model.signals import tiers
from lakerunner.model.signals.metrics import SAMPLES
from lakerunner.model.signals.tiers import ROLLUP_COLUMNS, TIER_SAMPLES, finer_tiers
from lakerunner.pipeline.rollup import kernels, sketches
from lakerunner.pipeline.rollup.columns import bucket_indexes, is_valid, list_offsets, numbers
from lakerunner.pipeline.rollup.kernels import Bools, Floats, Folded, HistogramRows, Ints, Parts
from lakerunner.pipeline.rollup.sketches import Sketches

#: In the metadata of a table and of its Parquet file: the tier that it is.
TIER_METADATA = b"lakerunner.tier_s"

_MS_PER_S = 1_000


def roll_up(samples: pa.Table, tier_s: int) -> pa.Table:
    """Roll raw samples or a finer tier up to a tier. Equal to rolling up step by step, and to rolling up the raw.

    Samples must be sorted by metric, series and time, each (series, time) once. What belongs to one bucket must be in
    one table. Columns that are all null may be missing.
    """
    return roll_up_tiers(samples, (tier_s,))[tier_s]


def roll_up_tiers(samples: pa.Table, tiers_s: Iterable[int]) -> dict[int, pa.Table]:
    """Several tiers in one pass. Each is made of the finest one before it, whether that one is wanted or not."""
    wanted = sorted(set(tiers_s))
    made: dict[int, pa.Table] = {}
    for tier_s in dict.fromkeys(step for wish in wanted for step in finer_tiers(wish)):
        if tier_s > tier_of(samples):
            samples = _rolled_up(samples, tier_s)
        if tier_s in wanted:
            made[tier_s] = samples if samples.schema == tier_schema(tier_s) else _complete(samples, tier_s)
    coarse = [tier_s for tier_s, table in made.items() if tier_of(table) != tier_s]
    if coarse:
        raise BadInput(f"cannot roll up to {coarse[0]} s: the samples are rolled up to {tier_of(samples)} s already")
    return made


def _complete(samples: pa.Table, tier_s: int) -> pa.Table:
    """Rows of a tier as they are, with all its columns."""
    if tier_of(samples) != tier_s:
        return samples
    present = set(samples.column_names)
    columns = [
        samples.column(each.name).cast(each.type) if each.name in present else pa.nulls(samples.num_rows, each.type)
        for each in TIER_SAMPLES.columns
    ]
    return pa.Table.from_arrays(columns, schema=tier_schema(tier_s))


def tier_of(samples: pa.Table) -> int:
    """The tier that the table is, as its metadata says; raw when it does not say."""
    return int((samples.schema.metadata or {}).get(TIER_METADATA, RAW_TIER_S))


def tier_schema(tier_s: int) -> pa.Schema:
    return TIER_SAMPLES.schema().with_metadata({TIER_METADATA: str(tier_s).encode()})


def _rolled_up(samples: pa.Table, tier_s: int) -> pa.Table:
    times = numbers(samples, "timestamp").astype(np.int64, copy=False)
    tids = numbers(samples, "tid")
    starts = numbers(samples, "start_timestamp").astype(np.int64, copy=False)
    values = numbers(samples, "value").astype(np.float64, copy=False)
    is_histogram = is_valid(samples, "h_schema")
    kinds = _kinds(samples, values, is_histogram)
    offsets = np.empty(len(tids) + 1, np.int64)
    offsets = offsets[: kernels.bucket_offsets(tids, times, tier_s * _MS_PER_S, offsets) + 1]
    parts = _parts(samples)
    breaks = np.zeros(len(tids), np.bool_)
    if is_histogram.any():
        histograms = _histograms(samples, is_histogram)
        cut = np.empty(len(tids) + 1, np.int64)
        offsets = cut[: kernels.split_irregular(offsets, kinds, histograms, parts, cut) + 1]
        kernels.find_breaks(offsets, kinds, starts, histograms, breaks)
    keep = np.zeros(len(tids), np.bool_)
    out = kernels.empty_folded(len(offsets) - 1)
    kernels.fold(offsets, kinds, times, starts, values, breaks, parts, keep, out)
    sketched = (
        sketches.regrouped(sketches.from_columns(samples), offsets)
        if len(parts.samples)
        else sketches.of_values(values, kinds == kernels.NUMBER, offsets)
    )
    rows = np.flatnonzero(keep)
    kept = _kept(samples, rows)
    columns = _aggregates(out, sketched, values, times, rows)
    return pa.Table.from_arrays([*kept, *columns], schema=tier_schema(tier_s))


def _kinds(samples: pa.Table, values: Floats, is_histogram: Bools) -> Ints:
    stale = np.uint64(STALE_BITS)
    kinds = np.where(values.view(np.uint64) == stale, kernels.STALE, kernels.NUMBER)
    if is_histogram.any():
        sums = np.ascontiguousarray(numbers(samples, "h_sum")).view(np.uint64)
        kinds = np.where(is_histogram, np.where(sums == stale, kernels.STALE, kernels.HISTOGRAM), kinds)
    return kinds


def _histograms(samples: pa.Table, is_histogram: Bools) -> HistogramRows:
    columns = [column.name for column in SAMPLES.columns if column.name.startswith("h_")]
    table = samples.select([name for name in columns if name in samples.column_names])
    if not is_histogram.all():
        table = table.filter(pa.array(is_histogram))
    row = np.where(is_histogram, np.cumsum(is_histogram) - 1, -1).astype(np.int64)
    bounds_offsets, bounds = list_offsets(table, "h_custom_values")
    return HistogramRows(
        row,
        numbers(table, "h_schema").astype(np.int8, copy=False),
        numbers(table, "h_reset_hint").astype(np.int8, copy=False),
        numbers(table, "h_zero_threshold"),
        numbers(table, "h_zero_count"),
        numbers(table, "h_count"),
        numbers(table, "h_sum"),
        is_valid(table, "h_sum"),
        *bucket_indexes(table, "h_positive_spans", "h_positive_buckets"),
        *bucket_indexes(table, "h_negative_spans", "h_negative_buckets"),
        bounds_offsets,
        bounds,
    )


def _parts(samples: pa.Table) -> Parts:
    if tier_of(samples) == RAW_TIER_S:
        return kernels.empty_parts()
    floats = (numbers(samples, name) for name in (tiers.SUM, tiers.SUM_LOW, tiers.MIN, tiers.MAX, tiers.RESETS))
    return Parts(numbers(samples, tiers.COUNT), is_valid(samples, tiers.SUM), *floats)


def _kept(samples: pa.Table, rows: Ints) -> list[pa.Array]:
    """The columns of raw samples, only those rows. Most samples are numbers, so most columns are empty."""
    index = pa.array(rows)
    kept = []
    for column in SAMPLES.columns:
        if column.name not in samples.column_names:
            kept.append(pa.nulls(len(rows), column.type))
            continue
        array = samples.column(column.name).combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        if array.null_count == len(array):
            kept.append(pa.nulls(len(rows), column.type))
        else:
            kept.append(array.take(index).cast(column.type))
    return kept


def _aggregates(out: Folded, sketched: Sketches, values: Floats, times: Ints, rows: Ints) -> list[pa.Array]:
    """The rollup columns of the kept rows: of each bucket in the row of its last sample, null in the others."""
    buckets = np.flatnonzero(out.last >= 0)
    place = np.searchsorted(rows, out.last[buckets])
    with_numbers = buckets[out.first_number[buckets] >= 0]
    number_place = np.searchsorted(rows, out.last[with_numbers])
    first, last = values[out.first_number[with_numbers]], values[out.last_number[with_numbers]]
    resets = out.resets[with_numbers]
    with np.errstate(invalid="ignore", over="ignore"):
        increase = (last - first) + resets
    floats: dict[str, Floats] = {
        tiers.SUM: out.total[with_numbers],
        tiers.SUM_LOW: out.low[with_numbers],
        tiers.MIN: out.smallest[with_numbers],
        tiers.MAX: out.largest[with_numbers],
        tiers.FIRST: first,
        tiers.LAST: last,
        tiers.INCREASE: increase,
        tiers.RESETS: resets,
    }
    absent = np.ones(len(rows), np.bool_)
    absent[number_place] = False
    columns = {
        name: pa.array(_scattered(found, number_place, len(rows)), mask=absent, from_pandas=False)
        for name, found in floats.items()
    }
    first_times = _scattered(times[out.first_number[with_numbers]], number_place, len(rows))
    columns[tiers.FIRST_TIMESTAMP] = pa.array(first_times, pa.int64(), mask=absent).cast(pa.timestamp("ms", "UTC"))
    uncounted = np.ones(len(rows), np.bool_)
    uncounted[place] = False
    columns[tiers.COUNT] = pa.array(_scattered(out.samples[buckets], place, len(rows)), mask=uncounted)
    chosen = sketches.only(sketched, with_numbers)
    columns |= sketches.to_columns(chosen, number_place, len(rows))
    return [columns[column.name].cast(column.type) for column in ROLLUP_COLUMNS]


def _scattered(found: np.ndarray, place: Ints, size: int) -> np.ndarray:
    column = np.zeros(size, found.dtype)
    column[place] = found
    return column
