"""What a merge writes equals what ingest would have written, had it read all objects at once."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.attributes import OVERFLOW, keys_of
from lakerunner.formats.read import read_object
from lakerunner.formats.unify_tables import unify_tables
from lakerunner.model.ids import fresh_id
from lakerunner.model.labels import loki_label
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, SIGNALS, TRACES
from lakerunner.model.signals.logs import REPEAT
from lakerunner.pipeline import segment_output
from lakerunner.pipeline.compact import merge as merging
from lakerunner.pipeline.compact import task as tasks
from lakerunner.pipeline.compact.task import CompactTask, UnreadableInput, run_task
from lakerunner.pipeline.ordering import sorted_table
from lakerunner.pipeline.repeats import with_repeats
from lakerunner.pipeline.split import Tables, merged
from lakerunner.store import keys, segment_writer
from lakerunner.store.config import StoreConfig
from lakerunner.store.nanos import join_nanos
from lakerunner.store.needles import filters_of
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of, without_empty_sparse
from tests.pipeline.lake import ORG, otlp

TYPES = AttributeTypes({"attr_n": "double", "attr_s": "text", "attr_b": "bool", "attr_o": "text"})


class Bucket:
    def __init__(self, folder: Path) -> None:
        self.config = StoreConfig(url=(folder / "bucket").as_uri())
        self.store = open_store(self.config)
        self.scratch = str(folder / "scratch")

    def write(self, signal: Signal, decoded: Sequence[Tables], types: AttributeTypes) -> Segment:
        """As ingest does, in one part."""
        tables = as_ingested(signal, decoded, types)
        files = encode_tables(signal, tables)
        size = sum(file.size for file in files)
        about = describe(signal, tables[""])
        segment = segment_of(signal, about, segment_id=fresh_id(), org_id=ORG, collector="shop", size_bytes=size)
        for key, file in zip(keys.segment_keys(segment), files, strict=True):
            self.store.put(key, memoryview(file))
        return segment

    def task(self, segments: Sequence[Segment], types: AttributeTypes, **options: Any) -> CompactTask:
        inputs = sorted(segments, key=lambda each: (each.time_range.start_ns, each.segment_id))
        return CompactTask(fresh_id(), inputs[0].signal, tuple(inputs), self.config, self.scratch, types, **options)

    def compact(self, segments: Sequence[Segment], types: AttributeTypes, **options: Any) -> Segment:
        result = run_task(self.task(segments, types, **options))
        assert result.error is None, result.error
        assert result.segment is not None
        assert not list(Path(self.scratch).iterdir()), "scratch is left behind"
        return result.segment

    def read(self, segment: Segment, table: int = 0) -> pa.Table:
        return join_nanos(pq.read_table(pa.BufferReader(self.store.get(keys.segment_keys(segment)[table]))))

    def file(self, segment: Segment) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(self.store.get(keys.segment_keys(segment)[0])))


def as_ingested(signal: Signal, decoded: Sequence[Tables], types: AttributeTypes) -> Tables:
    tables = {
        table.suffix: sorted_table(rows, table.sort_key)
        for table, rows in zip(signal.tables, merged(signal, decoded, types).values(), strict=True)
    }
    return {**tables, "": with_repeats(tables[""])} if signal is LOGS else tables


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few hundred rows are many batches and row groups."""
    monkeypatch.setattr(tasks, "_ROWS_AT_ONCE", 64)
    monkeypatch.setattr(tasks, "_LEAST_ROWS", 16)
    monkeypatch.setattr(segment_output, "MAX_GROUP_ROWS", 100)
    monkeypatch.setattr(segment_writer, "MAX_GROUP_ROWS", 100)


def in_order(table: pa.Table, key: Sequence[str]) -> list[dict[str, Any]]:
    """Rows by key, equal keys in an order of their own."""
    rows = table.to_pylist()
    return sorted(rows, key=lambda row: ([str(row[name]) for name in key], json.dumps(row, default=str)))


def check_equal(
    signal: Signal, bucket: Bucket, made: Segment, decoded: Sequence[Tables], types: AttributeTypes
) -> None:
    expected = as_ingested(signal, decoded, types)
    for number, table in enumerate(signal.tables):
        want = without_empty_sparse(table, expected[table.suffix])
        got = without_empty_sparse(table, bucket.read(made, number))
        want, got = (
            each.drop_columns([name for name in [REPEAT] if name in each.column_names]) for each in (want, got)
        )
        if OVERFLOW in got.column_names and got.column(OVERFLOW).null_count == got.num_rows:
            got = got.drop_columns([OVERFLOW])
        assert got.column_names == want.column_names
        assert sorted_table(got, table.sort_key).equals(got), "in order"
        left, right = in_order(got, table.sort_key), in_order(want, table.sort_key)
        if number:
            # Of two descriptions of a series either may stay.
            left, right = ([{"tid": row["tid"], "labels": row["labels"]} for row in side] for side in (left, right))
        assert str(left) == str(right)
    if signal is LOGS:
        inputs = [as_ingested(signal, [each], types)[""] for each in decoded]
        assert entries(bucket.read(made)) == sum(map(entries, inputs), Counter()), "as visible as before"
    about = describe(signal, expected[""])
    assert (made.row_count, made.time_range, made.pruning) == (about.row_count, about.time_range, about.pruning)


def without_marks(rows: pa.Table) -> pa.Table:
    return rows.drop_columns([REPEAT]) if REPEAT in rows.column_names else rows


def entries(logs: pa.Table) -> Counter[str]:
    """What LogQL shows: rows that are not marked as repeats."""
    if REPEAT in logs.column_names:
        logs = logs.filter(logs.column(REPEAT).is_null())
    return Counter(map(str, logs.select(["timestamp", "service_name", "message"]).to_pylist()))


@pytest.mark.parametrize("pieces", ["whole", "small"])
@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_merged_rows_are_those_of_one_ingest(
    signal: Signal, pieces: str, bucket: Bucket, request: pytest.FixtureRequest
) -> None:
    if pieces == "small":
        request.getfixturevalue("small_pieces")
    decoded = [
        read_object(otlp(signal, rows, seed=seed), signal).tables for seed, rows in ((1, 300), (2, 40), (3, 170))
    ]
    types = AttributeTypes(AttributeTypes().added(merged(signal, decoded)[""].schema, signal.rows.schema().names))
    segments = [bucket.write(signal, [each], types) for each in decoded]
    made = bucket.compact(segments, types)
    check_equal(signal, bucket, made, decoded, types)
    assert made.level == 1
    if pieces == "small":
        assert bucket.file(made).metadata.num_row_groups > 3


values = st.one_of(
    st.integers(-5, 5), st.floats(-2, 2, width=16), st.booleans(), st.sampled_from(["x", "1", "true", "1.5"])
)
line = st.fixed_dictionaries(
    {"ts": st.integers(0, 5), "message": st.sampled_from(["a", "b"])},
    optional={
        "service": st.sampled_from(["cart", "web"]),
        "n": values,
        "s": values,
        "b": values,
        "N": values,
        "o": values,
    },
)
objects = st.lists(st.lists(line, min_size=1, max_size=12), min_size=2, max_size=5)


@given(objects=objects, at_once=st.integers(1, 30))
@settings(
    deadline=None,
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_logs_of_changing_shape(
    objects: list[list[dict[str, Any]]], at_once: int, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attributes come and go, change their types and their spelling; lines repeat."""
    monkeypatch.setattr(tasks, "_ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(tasks, "_LEAST_ROWS", 1)
    bodies = [
        "\n".join(json.dumps({**row, "ts": f"2026-11-15T10:00:0{row['ts']}Z"}) for row in rows) for rows in objects
    ]
    decoded = [read_object(body.encode(), LOGS, "logs.json").tables for body in bodies]
    segments = [bucket.write(LOGS, [each], TYPES) for each in decoded]
    made = bucket.compact(segments, TYPES)
    got = bucket.read(made)
    want = as_ingested(LOGS, decoded, TYPES)[""]
    assert _shown(without_marks(got)) == _shown(without_marks(want))
    assert entries(got) == sum((entries(bucket.read(each)) for each in segments), Counter()), "as visible as before"


def _shown(table: pa.Table) -> list[str]:
    """Every row with all that a query can find of it: in columns, as the keys were spelled, and in the overflow."""
    usual = keys_of(table.schema)
    rows = []
    for row in table.to_pylist():
        overflow = dict(row.pop(OVERFLOW, None) or [])
        spelled = json.loads(row.pop("spelled_keys", None) or "{}")
        present = {name: value for name, value in row.items() if value is not None}
        keys = {name: loki_label(spelled.get(name, usual[name][0])) for name in present if name in usual}
        rows.append(str(sorted({**overflow, **present}.items(), key=str)) + str(sorted(keys.items())))
    return sorted(rows)


def test_a_frequent_attribute_gets_its_column_back(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the one input it was rare among many; over both inputs it is frequent."""
    monkeypatch.setattr("lakerunner.formats.unify_tables.MAX_PROMOTED_COLUMNS", 1)
    base = {"ts": "2026-11-15T10:00:00Z", "message": "m"}
    first = [{**base, "a": number} for number in range(10)] + [{**base, "n": 1}]
    second = [{**base, "n": number} for number in range(20)]
    types = AttributeTypes({"attr_a": "double", "attr_n": "double"})
    decoded = [
        read_object("\n".join(map(json.dumps, rows)).encode(), LOGS, "logs.json").tables for rows in (first, second)
    ]
    segments = []
    for each in decoded:
        capped = unify_tables([each[""]], LOGS.rows, cap=1, types=types)
        segments.append(bucket.write(LOGS, [{"": capped}], types))
    assert bucket.read(segments[0]).column(OVERFLOW).to_pylist()[-1] == [("attr_n", "1")]
    made = bucket.read(bucket.compact(segments, types))
    assert made.column("attr_n").null_count == 10
    assert made.column("attr_a").null_count == 21


def test_equal_keys_without_end(bucket: Bucket, small_pieces: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows have one time: they are handed on in pieces, and none is lost."""
    monkeypatch.setattr(merging, "MAX_EQUAL_ROWS", 64)
    decoded = []
    for part in range(3):
        lines = [{"ts": "2026-11-15T10:00:00Z", "service": "s", "message": f"{part} {n}"} for n in range(200)]
        lines.append({"ts": "2026-11-15T10:00:01Z", "service": "s", "message": f"{part} last"})
        decoded.append(read_object("\n".join(map(json.dumps, lines)).encode(), LOGS, "logs.json").tables)
    made = bucket.compact([bucket.write(LOGS, [each], TYPES) for each in decoded], TYPES)
    check_equal(LOGS, bucket, made, decoded, TYPES)


def test_filters_and_indexes_are_made_anew(bucket: Bucket, small_pieces: None) -> None:
    decoded = [read_object(otlp(LOGS, 300, seed=seed), LOGS).tables for seed in (1, 2)]
    types = AttributeTypes(AttributeTypes().added(merged(LOGS, decoded)[""].schema, LOGS.rows.schema().names))
    made = bucket.file(bucket.compact([bucket.write(LOGS, [each], types) for each in decoded], types))
    groups = made.metadata.num_row_groups
    assert len(filters_of(made.metadata.metadata)["message"]) == groups > 1
    for number in range(groups):
        group = made.metadata.row_group(number)
        columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
        assert [list(columns)[each.column_index] for each in group.sorting_columns] == list(LOGS.rows.sort_key)
        assert all(each.has_column_index and each.has_offset_index for each in columns.values())
        assert columns["trace_id"].bloom_filter_offset is not None
    assert made.schema_arrow.metadata[b"lakerunner.signal"] == b"logs"


def replayed(signal: Signal, bucket: Bucket, **options: Any) -> tuple[int, int]:
    """Rows of an object and rows after it was merged with itself and another object."""
    one = read_object(otlp(signal, 50, seed=1), signal).tables
    other = read_object(otlp(signal, 50, seed=2), signal).tables
    if signal is METRICS:
        # The same series, a millisecond later.
        later = pc.add(other[""].column("timestamp").cast(pa.int64()), 1).cast(pa.timestamp("ms", "UTC"))
        other = {**other, "": other[""].set_column(2, other[""].schema.field(2), later)}
    types = AttributeTypes(AttributeTypes().added(merged(signal, [one, other])[""].schema, signal.rows.schema().names))
    segments = [bucket.write(signal, parts, types) for parts in ([one], [one], [other])]
    made = bucket.compact(segments, types, **options)
    return one[""].num_rows + other[""].num_rows, made.row_count


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_rows_of_a_source_that_was_read_twice_are_removed(signal: Signal, bucket: Bucket) -> None:
    # The order of the inputs is that of their times, which the first two share.
    once, kept = replayed(signal, bucket, readings=((), (0,), (0, 1)))
    assert kept == once
    _, all_kept = replayed(signal, bucket)
    assert all_kept > once


@pytest.mark.parametrize("signal", [METRICS, TRACES], ids=str)
def test_equal_rows_are_stored_once_where_it_is_switched_on(signal: Signal, bucket: Bucket) -> None:
    once, kept = replayed(signal, bucket, deduplicates=True)
    assert kept == once


def test_equal_lines_of_one_source_stay(bucket: Bucket) -> None:
    """Sent twice in one object, which was read twice: two of four stay, and the third one of another object.

    LogQL shows a line once per segment of ingest, before and after.
    """
    row = json.dumps({"ts": "2026-11-15T10:00:00Z", "service": "s", "message": "again"})
    twice = read_object(f"{row}\n{row}".encode(), LOGS, "logs.json").tables
    once = read_object(row.encode(), LOGS, "logs.json").tables
    segments = [bucket.write(LOGS, [each], TYPES) for each in (twice, twice, once)]
    made = bucket.compact(segments, TYPES, readings=((), (0,), ()))
    assert made.row_count == 3
    assert entries(bucket.read(made)).total() == 2
    made = bucket.compact(segments, TYPES)
    assert made.row_count == 5
    assert entries(bucket.read(made)).total() == 3
    again = bucket.compact([made, segments[2]], TYPES)
    assert (again.row_count, entries(bucket.read(again)).total()) == (6, 4)


def test_a_damaged_input_is_to_blame(bucket: Bucket, tmp_path: Path) -> None:
    decoded = [read_object(otlp(LOGS, 50, seed=seed), LOGS).tables for seed in (1, 2)]
    segments = [bucket.write(LOGS, [each], TYPES) for each in decoded]
    path = tmp_path / "bucket" / keys.segment_keys(segments[1])[0]
    body = bytearray(path.read_bytes())
    body[200:400] = bytes(200)
    path.write_bytes(body)
    result = run_task(bucket.task(segments, TYPES))
    assert isinstance(result.error, UnreadableInput)
    path.unlink()
    assert isinstance(run_task(bucket.task(segments, TYPES)).error, UnreadableInput)
    # Alone, an input is only checked.
    alone = run_task(bucket.task(segments[:1], TYPES))
    assert alone.error is None and alone.segment is None
    assert isinstance(run_task(bucket.task(segments[1:], TYPES)).error, UnreadableInput)


def test_bits_of_samples_stay(bucket: Bucket) -> None:
    marker = np.array([0x7FF0000000000002], np.uint64).view(np.float64)
    tables = []
    for number in range(2):
        rows = [{"metric_name": "m", "tid": number, "timestamp": 1, "value": 0.0}]
        samples = pa.Table.from_pylist(rows, schema=METRICS.rows.schema()).set_column(3, "value", pa.array(marker))
        series = [{"tid": number, "metric_name": "m", "labels": []}]
        tables.append({"": samples, ".series": pa.Table.from_pylist(series, schema=METRICS.tables[1].schema())})
    made = bucket.compact([bucket.write(METRICS, [each], TYPES) for each in tables], TYPES)
    assert bucket.read(made).column("value").to_numpy().view(np.uint64).tolist() == [0x7FF0000000000002] * 2


def test_the_org_of_the_output_is_that_of_its_inputs(bucket: Bucket) -> None:
    decoded = [read_object(otlp(LOGS, 5, seed=seed), LOGS).tables for seed in (1, 2)]
    made = bucket.compact([bucket.write(LOGS, [each], TYPES) for each in decoded], TYPES)
    assert (made.org_id, made.collector) == (uuid.UUID(int=7), "shop")
