from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.formats.attributes import keys_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.read import read_object
from lakerunner.formats.unify_tables import unify_tables
from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.store.nanos import split_nanos
from tests.formats.otlp_samples import log_batches, trace_batches


def parquet(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


AT = pa.array([1_763_200_000_000_000, 1_763_200_001_000_000], pa.timestamp("us"))


def test_columns_become_fields_and_attributes():
    table = pa.table(
        {
            "time": AT,
            "message": pa.array(["a", "b"]).dictionary_encode(),
            "trace_id": pa.array([b"t" * 15 + b"\xff", b"u" * 15 + b"\xfe"], pa.binary(16)),
            "http": pa.array([{"status": 200, "path": "/"}, {"status": 500, "path": None}]),
            "attributes": pa.array([[("k", "v")], [("k", "w"), ("l", "x")]], pa.map_(pa.string(), pa.string())),
            "small": pa.array([1, 2], pa.uint8()),
            "wide": pa.array([1, 2**64 - 1], pa.uint64()),
            "half": pa.array([0.5, 1.5], pa.float32()),
            "blob": pa.array([b"\x00\xff\x01", b"x"]),
            "list": pa.array([[1, 2], None]),
            "seen": AT,
            "resource_host": pa.array(["h1", "h2"]),
            "nothing": pa.nulls(2),
        }
    )
    first, second = read_object(parquet(table), LOGS, "x.parquet").tables[""].to_pylist()
    assert (first["timestamp"].value, first["message"]) == (1_763_200_000_000_000_000, "a")
    assert first["trace_id"] == "74" * 15 + "ff"
    assert {k: v for k, v in first.items() if k.startswith(("attr_", "resource_")) and v is not None} == {
        "attr_http_status": 200,
        "attr_http_path": "/",
        "attr_k": "v",
        "attr_small": 1,
        "attr_wide": "1",
        "attr_half": 0.5,
        "attr_blob": "AP8B",
        "attr_list": "[1,2]",
        "attr_seen": "2025-11-15 09:46:40.000000",
        "resource_host": "h1",
    }
    assert (second["attr_k"], second["attr_l"], second["attr_wide"]) == ("w", "x", str(2**64 - 1))


def test_a_table_of_ours_comes_back_as_it_was():
    table = read_object(next(log_batches(50)).SerializeToString(), LOGS).tables[""]
    again = read_object(parquet(table), LOGS).tables[""]
    plain = [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    assert sorted(f.name for f in again.schema) == sorted(name for name, _ in plain)
    for name, kind in plain:
        assert again.column(name).cast(kind).to_pylist() == table.column(name).cast(kind).to_pylist(), name
    assert keys_of(again.schema) == keys_of(table.schema)


def test_metrics_and_traces():
    metrics = pa.table({"timestamp": AT, "name": ["load", "load"], "value": [1.5, 2.5], "host": ["a", "a"]})
    decoded = read_object(parquet(metrics), METRICS)
    assert decoded.tables[""].column("value").to_pylist() == [1.5, 2.5]
    assert decoded.tables[".series"].num_rows == 1
    spans = pa.table({"trace_id": ["ab" * 16, "cd" * 16], "start_time": AT, "duration_ns": [5, 6], "name": ["x", "y"]})
    assert read_object(parquet(spans), TRACES).tables[""].column("duration_ns").to_pylist() == [5, 6]


@pytest.mark.parametrize("kind", [3, 3.0, "3", "SPAN_KIND_CLIENT", "Client", "client"])
@pytest.mark.parametrize("status", [2, "2", "STATUS_CODE_ERROR", "Error"])
def test_kinds_and_statuses_of_spans_have_otlps_names(kind: object, status: object):
    table = pa.table(
        {"time": AT, "trace_id": ["a" * 32, "b" * 32], "kind": [kind, None], "status_code": [status, None]}
    )
    first, second = read_object(parquet(table), TRACES, "x.parquet").tables[""].to_pylist()
    assert (first["kind"], first["status_code"]) == ("client", "error")
    assert (second["kind"], second["status_code"]) == (None, "unset")


def test_a_status_counts_if_it_is_one_of_a_span():
    table = pa.table({"time": AT, "trace_id": ["a" * 32, "b" * 32], "status": ["ERROR", "404"]})
    first, second = read_object(parquet(table), TRACES, "x.parquet").tables[""].to_pylist()
    assert (first["status_code"], first["attr_status"]) == ("error", None)
    assert (second["status_code"], second["attr_status"]) == ("unset", "404")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("duration_ns", [1_500_000, None]),
        ("duration_us", [1_500.0, None]),
        ("durationMs", [1.5, None]),
        ("duration_seconds", ["0.0015", None]),
        ("duration", pa.array([1_500, None], pa.duration("us"))),
    ],
)
def test_a_duration_has_the_unit_of_its_name_or_type(name: str, values: object):
    table = pa.table({"time": AT, "trace_id": ["a" * 32, "b" * 32], name: values})
    spans = read_object(parquet(table), TRACES, "x.parquet").tables[""]
    assert spans.column("duration_ns").to_pylist() == [1_500_000, 0]
    assert not [column for column in spans.column_names if column.startswith("attr_")]


def test_events_and_links_of_spans():
    at_ns = 1_763_200_000_123_456_789
    kind = pa.struct(
        [
            ("timestamp", pa.timestamp("ns", "UTC")),
            ("name", pa.string()),
            ("attributes", pa.map_(pa.string(), pa.string())),
        ]
    )
    events = [[{"timestamp": at_ns, "name": "retry", "attributes": [("n", "1")]}, {"name": "end"}], None]
    links = [None, [{"traceId": "C" * 32, "spanId": "d" * 16, "attributes": {"a": 1}, "flags": 1}]]
    table = pa.table(
        {"time": AT, "trace_id": ["a" * 32, "b" * 32], "events": pa.array(events, pa.list_(kind)), "links": links}
    )
    first, second = read_object(parquet(table), TRACES, "x.parquet").tables[""].to_pylist()
    retry, end = first["events"]
    assert (retry["timestamp"].value, retry["name"], retry["attributes"]) == (at_ns, "retry", '{"n":"1"}')
    assert (end["timestamp"], end["name"], end["attributes"]) == (None, "end", None)
    assert second["links"] == [
        {"trace_id": "c" * 32, "span_id": "d" * 16, "trace_state": None, "flags": 1, "attributes": '{"a":1}',
         "dropped_attributes_count": 0},
    ]  # fmt: skip
    assert (first["links"], second["events"]) == (None, None)


def test_spans_of_ours_come_back_as_they_were():
    spans = read_object(next(trace_batches(40)).SerializeToString(), TRACES).tables[""]
    stored = split_nanos(unify_tables([spans], TRACES.rows))
    again = read_object(parquet(stored), TRACES, "x.parquet").tables[""]
    assert any(spans.column("events").to_pylist())
    for name in TRACES.rows.schema().names:
        assert again.column(name).to_pylist() == spans.column(name).to_pylist(), name


def test_nested_values_become_attributes():
    value = pa.struct([("string_value", pa.string()), ("int_value", pa.int64())])
    pairs = [{"key": "user", "value": {"string_value": "ann"}}, {"key": "n", "value": {"int_value": 7}}]
    table = pa.table(
        {
            "time": AT,
            "resource": [{"attributes": {"host": {"name": "h1"}}}, None],
            "attributes": pa.array([pairs, None], pa.list_(pa.struct([("key", pa.string()), ("value", value)]))),
            "http": pa.array(
                [[("request", {"path": "/"})], []], pa.map_(pa.string(), pa.struct([("path", pa.string())]))
            ),
        }
    )
    first, _ = read_object(parquet(table), LOGS, "x.parquet").tables[""].to_pylist()
    found = {name: value for name, value in first.items() if name.startswith(("attr_", "resource_"))}
    assert found == {"attr_user": "ann", "attr_n": 7, "attr_http_request_path": "/", "resource_host_name": "h1"}
    # What is nested too deeply is kept as JSON.
    table = pa.table({"time": AT, "a": [{"b": {"c": 1}}, None]})
    first, _ = read_object(parquet(table), LOGS, "x.parquet", Limits(nesting_depth=1)).tables[""].to_pylist()
    assert first["attr_a_b"] == '{"c":1}'


def test_tables_of_the_clickhouse_exporter():
    texts = pa.map_(pa.string(), pa.string())
    shared = {
        "TraceId": ["ab" * 16],
        "SpanId": ["cd" * 8],
        "ServiceName": ["cart"],
        "ResourceAttributes": pa.array([[("host.name", "h")]], texts),
    }
    logs = pa.table(
        {"Timestamp": AT.slice(0, 1), "SeverityText": ["WARN"], "SeverityNumber": [13], "Body": ["hi"], **shared}
        | {"LogAttributes": pa.array([[("k", "v")]], texts)}
    )
    (row,) = read_object(parquet(logs), LOGS).tables[""].to_pylist()
    wanted = ("WARN", 13, "hi", "cart", "ab" * 16, "cd" * 8, "h", "v")
    names = ("severity", "severity_number", "message", "service_name", "trace_id", "span_id", "resource_host_name")
    assert tuple(row[name] for name in (*names, "attr_k")) == wanted
    spans = pa.table(
        {
            "Timestamp": AT.slice(0, 1),
            "SpanName": ["GET"],
            "SpanKind": ["Server"],
            "Duration": [5_000_000_000],
            **shared,
        }
    )
    (row,) = read_object(parquet(spans), TRACES).tables[""].to_pylist()
    assert (row["name"], row["kind"], row["duration_ns"], row["service_name"]) == (
        "GET",
        "server",
        5_000_000_000,
        "cart",
    )
    points = pa.table(
        {"TimeUnix": AT.slice(0, 1), "MetricName": ["load"], "MetricUnit": ["1"], "Value": [1.5]}
        | {"Attributes": pa.array([[("host", "a")]], texts)}
    )
    decoded = read_object(parquet(points), METRICS)
    assert decoded.tables[""].column("value").to_pylist() == [1.5]
    (series,) = decoded.tables[".series"].to_pylist()
    assert (series["labels"], series["unit"]) == ([("host", "a")], "1")


def test_rows_without_time_are_refused():
    table = pa.table({"time": pa.array(["2025-11-15T09:46:40Z", "soon", None]), "message": ["a", "b", "c"]})
    decoded = read_object(parquet(table), LOGS)
    assert decoded.tables[""].column("message").to_pylist() == ["a"]
    assert decoded.rejected == {"bad_timestamp": 1, "no_timestamp": 1}
    assert decoded.samples["bad_timestamp"][0].where == "row 2"


def test_an_empty_file_gives_an_empty_table():
    table = pa.table({"time": pa.array([], pa.timestamp("us")), "message": pa.array([], pa.string())})
    assert read_object(parquet(table), LOGS).tables[""].num_rows == 0


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"time": pa.array([1] * 3_000_000), "message": pa.array(["m"] * 3_000_000)}),
        pa.table({"time": pa.array([1] * 2_000), "message": pa.array(["m" * 10_000] * 2_000)}),
    ],
)
def test_runs_of_equal_values_are_no_way_around_the_limit(table):
    data = parquet(table)
    assert len(data) < 100_000
    with pytest.raises(LimitHit, match="expanded_bytes"):
        read_object(data, LOGS, limits=Limits(expanded_bytes=10_000_000))


def test_broken_files_are_refused():
    data = parquet(pa.table({"time": AT, "message": ["a", "b"]}))
    for broken in (data[:-1], data[:40], b"PAR1", b"PAR1" + data[-20:]):
        with pytest.raises(BadInput, match="Parquet"):
            read_object(broken, LOGS)
