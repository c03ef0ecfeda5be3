from __future__ import annotations

import gzip

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from lakerunner.formats.decoded import excerpt_of
from lakerunner.formats.detect import Format, detect
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.signals import LOGS, METRICS, SIGNALS, TRACES
from lakerunner.model.time import MAX_TIME_NS
from tests.formats.otlp_samples import log_batches, metric_batches, trace_batches

WIRES = {
    LOGS: next(log_batches(40)).SerializeToString(),
    METRICS: next(metric_batches(40)).SerializeToString(),
    TRACES: next(trace_batches(40)).SerializeToString(),
}


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("name", ["logs_1.binpb", "logs_1.binpb.gz", "no-suffix", "lies.json", "lies.csv"])
def test_content_decides_and_not_the_name(signal, pack, name):
    decoded = read_object(pack(WIRES[signal]), signal, name)
    assert decoded.format == "otlp-protobuf"
    assert decoded.tables[""].num_rows >= 40
    assert not decoded.rejected


@pytest.mark.parametrize(
    ("data", "name", "found"),
    [
        (b"", "", Format.EMPTY),
        (b" \n\n", "", Format.EMPTY),
        (b"[{}]", "x.csv", Format.JSON),
        (b'noise\n{"a":1}', "", Format.JSON),
        (b"noise", "", Format.TEXT),
        (b"2026-11-16 05:00:00,123 INFO hi\n", "x.log", Format.TEXT),
        (b"2026-11-16 05:00:00,123 INFO hi\n", "x.csv", Format.TEXT),
        (b"Hello, world\nall, is well\n", "", Format.TEXT),
        (b"name,value\na,1\nb\nc\nd\n", "", Format.TEXT),
        (b"id,id\n1,2\n", "", Format.TEXT),
        (b"[2026-11-16 05:00:00] INFO hi\n", "", Format.TEXT),
        (b"[1] 16 Nov 05:00:00.123 * hi\n", "", Format.TEXT),
        (b"{main} INFO hi\n", "", Format.TEXT),
        ("gr\u00f6\u00dfe".encode("latin-1") + b" is a word\n", "x.log", Format.TEXT),
        (b"\x00" * 100 + b"2026-11-16 05:00:00 INFO hi\n", "x.log", Format.TEXT),
        (b"noise", "a/b.ndjson.gz", Format.JSON),
        (b"a,b\n", "", Format.CSV),
        (b"one\n1\n", "x.csv", Format.CSV),
        (b"a\tb\n1\t2", "noext", Format.CSV),
        ("time,größe\n".encode() * 2_000, "", Format.CSV),
        (b'{"a":"\x01"}', "", Format.JSON),
        (b"PAR1....", "x.json", Format.PARQUET),
        (b"\x0a\x7b" + b"\x12\x79" + b"\x22\x77" + b"x" * 119, "", Format.PROTOBUF),
        (b"\xff\xfe\x00", "x.csv", Format.CSV),
        (b"\xff\xfe\x00", "x.json", Format.JSON),
    ],
)
def test_formats_are_told(data, name, found):
    assert detect(data, name) is found


@pytest.mark.parametrize("data", [b"Obj\x01avro", b"PK\x03\x04", b"BZh9"])
def test_what_we_do_not_read_is_refused_with_a_sample(data):
    with pytest.raises(BadInput, match="cannot detect the format") as refusal:
        read_object(data, LOGS)
    assert excerpt_of(data) in str(refusal.value)


@pytest.mark.parametrize("options", [Options(), Options(fallback_time_ns=5)], ids=["", "with a fallback time"])
@pytest.mark.parametrize("sent", SIGNALS, ids=str)
@pytest.mark.parametrize("asked", SIGNALS, ids=str)
def test_another_signal_is_refused(sent, asked, options):
    if sent is asked:
        assert read_object(WIRES[sent], asked, options=options).tables[""].num_rows
        return
    with pytest.raises(BadInput):
        read_object(WIRES[sent], asked, options=options)


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_an_empty_object_has_empty_tables(signal):
    decoded = read_object(b"", signal)
    assert {suffix: table.num_rows for suffix, table in decoded.tables.items()} == {t.suffix: 0 for t in signal.tables}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-bom"])
@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        ("a.log", "2026-11-16 05:00:00,123 INFO h\u00e9\r\n", "text"),
        ("a.csv", "time,message\r\n1763200000,h\u00e9\r\n", "csv"),
        ("a.json", '{"time":1763200000,"msg":"h\u00e9"}\r\n', "jsonl"),
    ],
)
def test_byte_order_marks_and_utf16_are_read(encoding, name, text, format):
    data = b"\xff\xfe" + text.encode("utf-16-le") if encoding == "utf-16-le-bom" else text.encode(encoding)
    decoded = read_object(data, LOGS, name)
    assert decoded.format == format
    assert decoded.tables[""].column("message").to_pylist() == ["h\u00e9"]


@pytest.mark.parametrize("signal", [METRICS, TRACES], ids=str)
def test_text_is_only_read_as_logs(signal):
    with pytest.raises(BadInput, match="plain text"):
        read_object(b"2026-11-16 05:00:00,123 INFO hi\n", signal)


def test_limits_name_themselves():
    with pytest.raises(LimitHit, match="compressed_bytes"):
        read_object(WIRES[LOGS], LOGS, limits=Limits(compressed_bytes=100))
    with pytest.raises(LimitHit, match="expanded_bytes"):
        read_object(WIRES[LOGS], LOGS, limits=Limits(expanded_bytes=100))


def test_an_error_says_where_and_shows_how_it_began():
    with pytest.raises(BadInput) as refusal:
        read_object(WIRES[LOGS][:-3], LOGS)
    assert refusal.value.where
    assert WIRES[LOGS][:8].hex(" ") in str(refusal.value)


LATEST_NS = MAX_TIME_NS - 1
OUT_OF_RANGE = [MAX_TIME_NS, 2**63 - 1, 2**64 - 1]


def otlp_at(signal, times):
    """One row per time; in the fields whose value the index must hold."""
    if signal is LOGS:
        batch = LogsData()
        records = batch.resource_logs.add().scope_logs.add().log_records
        for at in times:
            records.add(time_unix_nano=at)
    elif signal is METRICS:
        batch = MetricsData()
        gauge = batch.resource_metrics.add().scope_metrics.add().metrics.add(name="load").gauge
        for at in times:
            gauge.data_points.add(time_unix_nano=at, as_double=1.0).attributes.add(key="at").value.int_value = (
                at % 2**62
            )
    else:
        batch = TracesData()
        spans = batch.resource_spans.add().scope_spans.add().spans
        for at in times:
            spans.add(trace_id=b"t" * 16, start_time_unix_nano=at, end_time_unix_nano=LATEST_NS)
            if at > LATEST_NS:
                spans.add(trace_id=b"t" * 16, start_time_unix_nano=1, end_time_unix_nano=at)
    return batch


def as_json(batch):
    # OTLP writes ids in hex, where protobuf's own JSON has base64.
    return MessageToJson(batch).replace("dHR0dHR0dHR0dHR0dHR0dA==", (b"t" * 16).hex()).encode()


@pytest.mark.parametrize("encode", [lambda batch: batch.SerializeToString(), as_json], ids=["protobuf", "json"])
@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_otlp_times_that_the_index_cannot_hold_are_rejected(signal, encode):
    """The end of a segment at 2**63 - 1 would not fit into the index, and withhold the whole bundle."""
    decoded = read_object(encode(otlp_at(signal, [1, LATEST_NS, *OUT_OF_RANGE])), signal)
    assert decoded.tables[""].num_rows == 2
    assert decoded.rejected == {"time_out_of_range": 6 if signal is TRACES else 3}
    if signal is METRICS:
        assert decoded.tables[".series"].num_rows == 2, "a series without samples is not described"


RECORDS = {
    LOGS: {"time": 1_763_200_000, "message": "m"},
    METRICS: {"time": 1_763_200_000, "name": "load", "value": 1.0},
    TRACES: {"start_time": 1_763_200_000, "end_time": 1_763_200_001, "trace_id": "ab" * 16},
}


@pytest.mark.parametrize("pack", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("signal", "field"),
    [(LOGS, "time"), (METRICS, "time"), (TRACES, "start_time"), (TRACES, "end_time"), (TRACES, "duration_ns")],
    ids=str,
)
def test_times_of_records_that_the_index_cannot_hold_are_rejected(signal, field, pack):
    wrong = [2e19, 2.0**63] if field == "duration_ns" else [9.1e18, -1e18]
    rows = [RECORDS[signal], *({**RECORDS[signal], field: value} for value in wrong)]
    table = pa.Table.from_pylist([{**dict.fromkeys(rows[1]), **row} for row in rows])
    if pack == "jsonl":
        body = b"\n".join(orjson.dumps(row) for row in rows)
    elif pack == "csv":
        names = table.column_names
        lines = [names, *([row.get(name, "") for name in names] for row in rows)]
        body = "\n".join(",".join(map(str, line)) for line in lines).encode()
    else:
        pq.write_table(table, sink := pa.BufferOutputStream())
        body = sink.getvalue().to_pybytes()
    decoded = read_object(body, signal, f"x.{pack}")
    assert decoded.tables[""].num_rows == 1
    assert decoded.rejected == {"time_out_of_range": 2}
    assert len(decoded.samples["time_out_of_range"]) == 2


def test_a_time_beside_the_event_time_is_left_out():
    line = orjson.dumps({**RECORDS[LOGS], "observed_timestamp": 9.1e18})
    [row] = read_object(line, LOGS).tables[""].to_pylist()
    assert row["observed_timestamp"] is None
