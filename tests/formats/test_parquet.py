from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.formats.attributes import keys_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.signals import LOGS, METRICS, TRACES
from tests.formats.otlp_samples import log_batches


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
