from __future__ import annotations

import math
import uuid
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.attributes import keys_of
from lakerunner.formats.read import read_object
from lakerunner.model.errors import Bug
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import MAX_PRUNING_VALUES
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, SIGNALS, TRACES
from lakerunner.pipeline.ordering import sorted_table
from lakerunner.store.encoding import choose_encodings
from lakerunner.store.nanos import join_nanos
from lakerunner.store.segment_writer import (
    MAX_GROUP_ROWS,
    describe,
    encode_tables,
    group_rows,
    to_parquet,
)
from tests.pipeline.lake import otlp


def rows_of(signal: Signal, count: int = 500) -> pa.Table:
    decoded = read_object(otlp(signal, count), signal)
    return sorted_table(decoded.tables[signal.rows.suffix], signal.rows.sort_key)


def logs(count: int, services: int = 3) -> pa.Table:
    names = pa.array([f"service-{i % services:05d}" for i in range(count)])
    table = LOGS.rows.schema().empty_table()
    columns = [pa.nulls(count, field.type) for field in table.schema]
    made = pa.Table.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in table.schema]))
    made = made.set_column(0, "timestamp", pa.array(np.arange(count) + 10**18, pa.timestamp("ns", "UTC")))
    made = made.set_column(made.column_names.index("service_name"), "service_name", names)
    ids = pa.array([f"{i:032x}" for i in range(count)])
    return made.set_column(made.column_names.index("trace_id"), "trace_id", ids)


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_what_is_written_reads_back_the_same(signal: Signal) -> None:
    tables = read_object(otlp(signal, 300), signal).tables
    for description, file in zip(signal.tables, encode_tables(signal, tables), strict=True):
        back = join_nanos(pq.read_table(pa.BufferReader(file)))
        sent = tables[description.suffix]
        left_out = [name for name in sent.column_names if name not in back.column_names]
        assert back.equals(sent.drop_columns(left_out))
        assert {name for name in left_out if sent.column(name).null_count < len(sent)} == set()
        assert set(left_out) <= {column.name for column in description.columns if column.sparse}


def test_every_page_has_a_checksum_and_others_can_be_read_without() -> None:
    body = bytearray(to_parquet(LOGS, LOGS.rows, logs(1_000)))
    chunk = pq.read_metadata(pa.BufferReader(bytes(body))).row_group(0).column(0)
    body[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(pa.BufferReader(bytes(body)), page_checksum_verification=True)
    older = pa.BufferOutputStream()
    pq.write_table(logs(10), older)
    assert pq.read_table(pa.BufferReader(older.getvalue()), page_checksum_verification=True).num_rows == 10


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=50))
def test_numbers_keep_every_bit(values: list[float]) -> None:
    table = METRICS.rows.schema().empty_table()
    rows = [{"metric_name": "m", "tid": i, "timestamp": i, "value": value} for i, value in enumerate(values)]
    table = pa.Table.from_pylist(rows, schema=METRICS.rows.schema())
    back = pq.read_table(pa.BufferReader(to_parquet(METRICS, METRICS.rows, table)))
    assert back.column("value").to_numpy().tobytes() == np.array(values).tobytes()


def test_the_stale_marker_survives() -> None:
    marker = np.array([0x7FF0000000000002], np.uint64).view(np.float64)
    rows = [{"metric_name": "m", "tid": 1, "timestamp": 1, "value": 0.0}]
    table = pa.Table.from_pylist(rows, schema=METRICS.rows.schema())
    table = table.set_column(3, "value", pa.array(marker))
    back = pq.read_table(pa.BufferReader(to_parquet(METRICS, METRICS.rows, table)))
    assert back.column("value").to_numpy().view(np.uint64)[0] == 0x7FF0000000000002


def test_the_file_says_what_it_is() -> None:
    table = rows_of(LOGS)
    meta = pq.ParquetFile(pa.BufferReader(to_parquet(LOGS, LOGS.rows, table)))
    assert meta.schema_arrow.metadata[b"lakerunner.signal"] == b"logs"
    assert meta.schema_arrow.metadata[b"lakerunner.format_version"] == b"1"
    assert keys_of(meta.schema_arrow)["attr_http_route"] == ["http.route"]
    group = meta.metadata.row_group(0)
    names = [group.column(n).path_in_schema for n in range(group.num_columns)]
    assert [names[each.column_index] for each in group.sorting_columns] == list(LOGS.rows.sort_key)
    for number in range(group.num_columns):
        column = group.column(number)
        assert column.compression == "ZSTD"
        assert column.has_offset_index and column.has_column_index, column.path_in_schema


def test_row_groups_are_small_enough_to_prune() -> None:
    table = logs(300_000)
    meta = pq.ParquetFile(pa.BufferReader(to_parquet(LOGS, LOGS.rows, table))).metadata
    assert meta.num_row_groups == math.ceil(300_000 / MAX_GROUP_ROWS)
    wide = pa.table({"message": ["x" * 10_000] * 30_000})
    assert group_rows(wide) < 15_000
    assert group_rows(wide.slice(0, 0)) == 1


def test_a_lookup_by_trace_opens_no_row_group_that_lacks_it(tmp_path: Path) -> None:
    path = tmp_path / "logs.parquet"
    path.write_bytes(to_parquet(LOGS, LOGS.rows, logs(300_000)))
    query = "SELECT DISTINCT path_in_schema FROM parquet_metadata(?) WHERE bloom_filter_length > 0"
    assert duckdb.execute(query, [str(path)]).fetchall() == [("trace_id",)]
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, 'trace_id', ?) ORDER BY row_group_id"
    passed = 0
    for number in range(200_000, 200_050):
        first, second, third = duckdb.execute(probe, [str(path), f"{number:032x}"]).fetchall()
        assert second == (False,), "the group that holds it"
        passed += first == (False,)
        passed += third == (False,)
    # One in a hundred may be opened in vain.
    assert passed <= 5
    count = duckdb.execute(f"SELECT count(*) FROM '{path}' WHERE trace_id = ?", [f"{200_000:032x}"]).fetchone()
    assert count == (1,)


def test_attributes_that_look_like_ids_have_bloom_filters() -> None:
    rows = 5_000
    table = logs(rows)
    ids = [f"request-{number * 7919:08x}" for number in range(rows)]
    for name, values in {
        "attr_request_id": ids,
        "attr_seldom": [value if number % 50 == 0 else None for number, value in enumerate(ids)],
        "attr_short": [f"{number}" for number in range(rows)],
        "attr_repeated": [f"a text that repeats {number % 10}" for number in range(rows)],
    }.items():
        table = table.append_column(name, pa.array(values))

    def filters(few: pa.Table) -> dict[str, int]:
        group = pq.ParquetFile(pa.BufferReader(to_parquet(LOGS, LOGS.rows, few))).metadata.row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        return {each.path_in_schema: each.bloom_filter_length for each in columns if each.bloom_filter_length}

    sizes = filters(table)
    assert {name for name in sizes if name.startswith("attr_")} == {"attr_request_id", "attr_seldom"}
    assert sizes["attr_request_id"] < 2 * rows and sizes["attr_seldom"] < 512
    assert not {name for name in filters(table.slice(0, 500)) if name.startswith("attr_")}


def test_compression_reaches_an_eighth_of_what_was_sent() -> None:
    body = otlp(LOGS, 20_000)
    table = read_object(body, LOGS).tables[""]
    # Ids of every record are random here, 24 bytes that nothing compresses; without them it is the layout that counts.
    ids = table.drop_columns(["trace_id", "span_id"])
    bare = sorted_table(ids, LOGS.rows.sort_key)
    for name in ("trace_id", "span_id"):
        bare = bare.append_column(name, pa.nulls(bare.num_rows, pa.string()))
    assert to_parquet(LOGS, LOGS.rows, bare).size < len(body) / 8


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_a_segment_is_described_by_its_rows(signal: Signal) -> None:
    table = rows_of(signal)
    described = describe(signal, table)
    times = [value * signal.time_unit_ns for value in table.column(signal.time_column).cast(pa.int64()).to_pylist()]
    assert described.row_count == table.num_rows
    assert described.time_range.start_ns == min(times)
    assert described.time_range.end_ns == max(times) + signal.time_unit_ns
    for name in signal.pruning:
        assert described.pruning.values[name] == tuple(sorted(set(table.column(name).to_pylist())))
        assert described.pruning.bounds[name] == (
            min(table.column(name).to_pylist()),
            max(table.column(name).to_pylist()),
        )


def test_too_many_values_match_everything() -> None:
    pruning = describe(LOGS, logs(MAX_PRUNING_VALUES + 1, services=MAX_PRUNING_VALUES + 1)).pruning
    assert "service_name" not in pruning.values
    assert pruning.bounds["service_name"] == ("service-00000", f"service-{MAX_PRUNING_VALUES:05d}")


def test_an_absent_service_is_kept_as_the_empty_one_and_gives_no_bounds() -> None:
    table = logs(3)
    table = table.set_column(
        table.column_names.index("service_name"), "service_name", pa.array(["b", None, "a"], pa.string())
    )
    pruning = describe(LOGS, table).pruning
    assert pruning.values["service_name"] == ("", "a", "b")
    assert "service_name" not in pruning.bounds


def test_a_segment_without_rows_cannot_be_described() -> None:
    with pytest.raises(Bug):
        describe(TRACES, TRACES.rows.schema().empty_table())


def test_fresh_ids_sort_by_their_making() -> None:
    ids = [fresh_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(each.version == 7 and each.variant == uuid.RFC_4122 for each in ids)
    assert [each.int >> 80 for each in ids] == sorted(each.int >> 80 for each in ids)


def test_values_that_repeat_only_in_many_rows_get_a_dictionary() -> None:
    """Of 20,000 values, hardly one is twice among the rows that are looked at, but each is six times in a row group."""
    rows = 1 << 17
    rng = np.random.default_rng(5)
    table = pa.table(
        {
            "attr_user": pa.array([f"u-{number}" for number in rng.integers(0, 20_000, rows)]),
            "attr_few": pa.array([f"u-{number}" for number in rng.integers(0, 5, rows)]),
            "attr_many": pa.array([f"u-{number}" for number in rng.integers(0, rows * 2, rows)]),
            "attr_id": pa.array([f"u-{number}" for number in range(rows)]),
        }
    )

    chosen = choose_encodings(LOGS.rows, table, rows)
    assert [name for name in table.column_names if name in chosen.dictionary] == ["attr_user", "attr_few"]
    # The few rows of a small file are all looked at.
    assert "attr_user" not in choose_encodings(LOGS.rows, table.slice(0, 4_000), rows).dictionary
