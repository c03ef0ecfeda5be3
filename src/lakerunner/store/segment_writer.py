"""Write segments: encode sorted Arrow tables as Parquet, and describe them for the index."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signal import Signal, Table
from lakerunner.store.encoding import choose_encodings
from lakerunner.store.nanos import split_nanos
from lakerunner.store.statistics import SegmentStatistics, StatisticsBuilder
from lakerunner.store.table_writer import FORMAT_VERSION, FRESH_LEVEL, MAX_GROUP_BYTES, MAX_GROUP_ROWS, TableWriter


def to_parquet(signal: Signal, description: Table, table: pa.Table, compression_level: int = FRESH_LEVEL) -> pa.Buffer:
    """Encode the table as a Parquet file. Its rows must be sorted by the description's sort key."""
    table = split_nanos(without_empty_sparse(description, table))
    rows = group_rows(table)
    sink = pa.BufferOutputStream()
    chosen = choose_encodings(description, table, rows)
    with TableWriter(sink, signal, description, table.schema, chosen, compression_level) as writer:
        for start in range(0, max(1, table.num_rows), rows):
            writer.write_group(table.slice(start, rows))
    return sink.getvalue()


def without_empty_sparse(description: Table, table: pa.Table) -> pa.Table:
    """Return the table without the columns that exist only where a row has a value, if none has."""
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
    builder = StatisticsBuilder(signal)
    builder.add(table)
    return builder.result()


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
    rules_version: int = 0,
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
        rules_version=rules_version,
        id_filter=statistics.id_filter,
    )


def encode_tables(
    signal: Signal, tables: Mapping[str, pa.Table], compression_level: int = FRESH_LEVEL
) -> Sequence[pa.Buffer]:
    """Encode all tables of a segment as Parquet, in the order of `signal.tables`."""
    return [to_parquet(signal, table, tables[table.suffix], compression_level) for table in signal.tables]
