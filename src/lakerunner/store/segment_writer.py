"""Write segments: encode sorted Arrow tables as Parquet, and describe them for the index."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.errors import Bug
from lakerunner.model.segment import MAX_PRUNING_VALUES, RAW_TIER_S, Pruning, Segment
from lakerunner.model.signal import Signal, Table
from lakerunner.model.time import TimeRange
from lakerunner.store.encoding import choose_encodings
from lakerunner.store.nanos import split_nanos
from lakerunner.store.needles import append_filters

#: Version of the layout that this release writes, also stored in `Segment.format_version` and the file's metadata.
FORMAT_VERSION = 1
#: Rows per group: few enough that a lookup reads little, enough for a dictionary to pay off. Readers work in parallel
#: on row groups.
MAX_GROUP_ROWS = 1 << 17
MAX_GROUP_BYTES = 128 << 20
#: Largest dictionary of a row group; the remaining values are written plain. Large, so that ids fit into one.
_DICTIONARY_BYTES = 16 << 20
#: zstd level 1 writes a third faster than 3 for 4% more bytes. Compacted segments are read for longer and use the
#: higher level.
FRESH_LEVEL, SETTLED_LEVEL = 1, 6

METADATA_PREFIX = b"lakerunner."


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """Statistics of the rows of a segment, known before it is encoded."""

    time_range: TimeRange
    row_count: int
    pruning: Pruning


def to_parquet(signal: Signal, description: Table, table: pa.Table, compression_level: int = FRESH_LEVEL) -> pa.Buffer:
    """Encode the table as a Parquet file. Its rows must be sorted by the description's sort key."""
    table = split_nanos(_without_empty_sparse(description, table))
    rows = group_rows(table)
    chosen = choose_encodings(description, table, rows)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        _with_metadata(signal, description, table.schema),
        compression="zstd",
        compression_level=compression_level,
        use_dictionary=chosen.dictionary,
        column_encoding=chosen.others or None,
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        write_page_index=True,
        # Readers find bit rot with it, which ZSTD alone does not.
        write_page_checksum=True,
        bloom_filter_options=chosen.blooms or None,
        sorting_columns=_sorting_columns(description, table.schema),
    ) as writer:
        writer.write_table(table, row_group_size=rows)
        searched = [column.name for column in description.columns if column.needles]
        if searched and table.num_rows:
            writer.add_key_value_metadata(append_filters(sink, table, searched, rows))
    return sink.getvalue()


def _without_empty_sparse(description: Table, table: pa.Table) -> pa.Table:
    sparse = [column.name for column in description.columns if column.sparse and column.name in table.column_names]
    empty = [name for name in sparse if table.column(name).null_count == table.num_rows]
    return table.drop_columns(empty) if empty else table


def group_rows(table: pa.Table) -> int:
    """Return the number of rows per row group."""
    if table.num_rows == 0:
        return 1
    by_size = int(MAX_GROUP_BYTES * table.num_rows / max(1, table.nbytes))
    return max(1, min(MAX_GROUP_ROWS, by_size))


def describe(signal: Signal, table: pa.Table) -> SegmentStatistics:
    """Compute time range, row count and pruning values of the table whose rows are counted."""
    if table.num_rows == 0:
        raise Bug("cannot describe a segment without rows")
    bounds = pc.min_max(table.column(signal.time_column).cast(pa.int64())).as_py()
    unit_ns = signal.time_unit_ns
    time_range = TimeRange(bounds["min"] * unit_ns, (bounds["max"] + 1) * unit_ns)
    return SegmentStatistics(time_range, table.num_rows, pruning_of(signal, table))


def pruning_of(signal: Signal, table: pa.Table) -> Pruning:
    """Collect distinct values of the pruning columns, and bounds of the pruning and sort columns except the time.

    A null is stored as the empty string: Prometheus and Loki do not distinguish an absent label from an empty one, so
    a query for either must open the segment.
    """
    values: dict[str, tuple[str, ...]] = {}
    for name in signal.pruning:
        distinct = {value or "" for value in pc.unique(table.column(name)).to_pylist()}
        if len(distinct) <= MAX_PRUNING_VALUES:
            values[name] = tuple(sorted(distinct))
    bounds = {}
    for name in (*signal.pruning, *signal.rows.sort_key):
        column = table.column(name)
        if name != signal.time_column and column.null_count == 0 and name not in bounds:
            plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            found = pc.min_max(plain).as_py()
            bounds[name] = (found["min"], found["max"])
    return Pruning(values, bounds)


def segment_of(
    signal: Signal,
    statistics: SegmentStatistics,
    *,
    segment_id: uuid.UUID,
    org_id: uuid.UUID,
    collector: str,
    size_bytes: int,
    tier_s: int = RAW_TIER_S,
    level: int = 0,
    is_dated: bool = True,
) -> Segment:
    return Segment(
        segment_id=segment_id,
        org_id=org_id,
        collector=collector,
        signal=signal.name,
        time_range=statistics.time_range,
        row_count=statistics.row_count,
        size_bytes=size_bytes,
        tier_s=tier_s,
        level=level,
        format_version=FORMAT_VERSION,
        pruning=statistics.pruning,
        is_dated=is_dated,
    )


def encode_tables(
    signal: Signal, tables: Mapping[str, pa.Table], compression_level: int = FRESH_LEVEL
) -> Sequence[pa.Buffer]:
    """Encode all tables of a segment as Parquet, in the order of `signal.tables`."""
    return [to_parquet(signal, table, tables[table.suffix], compression_level) for table in signal.tables]


def _with_metadata(signal: Signal, description: Table, schema: pa.Schema) -> pa.Schema:
    ours = {
        METADATA_PREFIX + b"signal": signal.name.encode(),
        METADATA_PREFIX + b"table": (description.suffix.removeprefix(".") or "rows").encode(),
        METADATA_PREFIX + b"format_version": str(FORMAT_VERSION).encode(),
    }
    return schema.with_metadata({**(schema.metadata or {}), **ours})


def _sorting_columns(description: Table, schema: pa.Schema) -> list[pq.SortingColumn]:
    return list(pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in description.sort_key]))
