from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.model.signals import LOGS, METRICS, TRACES
from tests.examples import examples

AT_NS = 1_763_200_000_123_000_000
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def lines(*records: Any) -> bytes:
    return b"\n".join(orjson.dumps(record) for record in records)


def log_rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    decoded = read_object(data, LOGS, "x.json", options=Options(**options))
    return [{k: v for k, v in row.items() if v is not None} for row in decoded.tables[""].to_pylist()]


LOGGERS = {
    "zap": {"level": "info", "ts": 1763200000.123, "caller": "a.go:1", "msg": "hello"},
    "logback": {"@timestamp": "2025-11-15T09:46:40.123Z", "level": "INFO", "message": "hello", "level_value": 20000},
    "pino": {"level": 30, "time": 1763200000123, "pid": 1, "msg": "hello"},
    "bunyan": {"name": "app", "level": 30, "time": "2025-11-15T09:46:40.123Z", "msg": "hello", "v": 0},
    "python-json-logger": {"asctime": "2025-11-15 09:46:40,123", "levelname": "INFO", "message": "hello"},
    "structlog": {"event": "hello", "level": "info", "timestamp": "2025-11-15T09:46:40.123000Z"},
    "serilog": {"@t": "2025-11-15T09:46:40.1230000Z", "@mt": "hello", "@l": "Information"},
    "fluent-bit": {"date": 1763200000.123, "log": "hello\n", "level": "info", "stream": "stdout"},
    "datadog": {"timestamp": 1763200000123, "status": "info", "message": "hello", "service": "cart"},
    "ecs": {"@timestamp": "2025-11-15T09:46:40.123Z", "log": {"level": "INFO"}, "message": "hello"},
    "google": {"time": "2025-11-15T09:46:40.123Z", "severity": "INFO", "message": "hello"},
    "plain": {"timestamp": "1763200000123", "severity": "INFO", "body": "hello"},
}


@pytest.mark.parametrize("logger", sorted(LOGGERS))
def test_common_loggers_are_understood(logger):
    (row,) = log_rows(lines(LOGGERS[logger]))
    assert (row["timestamp"].value, row["message"], row["severity_number"]) == (AT_NS, "hello", 9)
    assert row["severity"].upper() in ("INFO", "INFORMATION")


def test_what_is_no_field_is_an_attribute():
    record = {"time": AT_NS, "msg": "m", "http": {"status": 500, "tags": ["a", 1]}, "status": 200, "none": None}
    (row,) = log_rows(lines(record))
    attributes = {name: value for name, value in row.items() if name.startswith("attr_")}
    assert attributes == {"attr_http_status": 500, "attr_http_tags": '["a",1]', "attr_status": 200}


def test_only_one_of_two_keys_for_a_field_is_taken_and_the_other_kept():
    (row,) = log_rows(lines({"timestamp": AT_NS, "time": 5, "message": "m", "msg": "other"}))
    assert (row["message"], row["attr_msg"], row["attr_time"]) == ("m", "other", 5)


def test_service_and_trace_are_found():
    (row,) = log_rows(lines({"ts": 1, "service": {"name": "cart"}, "trace": {"id": TRACE_ID.upper()}, "span_id": "0"}))
    assert (row["service_name"], row["trace_id"]) == ("cart", TRACE_ID)
    assert "span_id" not in row


def test_resource_keys_go_to_resource_columns():
    (row,) = log_rows(lines({"ts": 1, "resource": {"attributes": {"host.name": "h"}, "zone": "z"}}))
    assert (row["resource_host_name"], row["resource_zone"]) == ("h", "z")


def test_configured_fields_come_first():
    (row,) = log_rows(lines({"when": 5, "ts": 1, "what": "m"}), fields={"timestamp": "when", "message": "what"})
    assert (row["timestamp"].value, row["message"], row["attr_ts"]) == (5_000_000_000, "m", 1)


def test_a_key_of_mixed_kinds_is_text():
    rows = log_rows(lines({"ts": 1, "a": 1}, {"ts": 2, "a": "x"}, {"ts": 3, "a": True}, {"ts": 4, "a": 2.5}))
    assert [row["attr_a"] for row in rows] == ["1", "x", "true", "2.5"]


def test_bad_lines_are_counted_and_their_neighbours_land():
    data = b'{"ts":1,"msg":"a"}\nrubbish\n[1]\n{"msg":"no time"}\n{"ts":"never"}\n{"ts":2,"msg":"b"}\n{"ts":3'
    decoded = read_object(data, LOGS, "x.json")
    assert decoded.tables[""].column("message").to_pylist() == ["a", "b"]
    # Lines that are no JSON are text, which has no time here.
    assert decoded.rejected == {"bad_json": 1, "no_timestamp": 3, "bad_timestamp": 1}
    assert [sample.where for sample in decoded.samples["no_timestamp"]] == ["line 2", "line 3", "line 4"]
    assert decoded.samples["bad_json"][0].excerpt == '{"ts":3'


def test_a_row_without_a_time_has_that_of_its_object_and_is_counted():
    data = lines({"ts": AT_NS, "msg": "a"}, {"msg": "b"}, {"ts": "never", "msg": "c"})
    decoded = read_object(data, LOGS, options=Options(fallback_time_ns=5))
    assert [value.value for value in decoded.tables[""].column("timestamp").to_pylist()] == [AT_NS, 5, 5]
    assert decoded.tables[""].column("attr_ts").to_pylist() == [None, None, "never"]
    assert decoded.cut == {"no_time": 2}
    assert not decoded.rejected


def test_bad_lines_of_other_signals_are_counted():
    data = b'{"name":"cpu","ts":1763200000,"value":1}\nrubbish\n[1]\n'
    decoded = read_object(data, METRICS, "x.json")
    assert decoded.tables[""].num_rows == 1
    assert decoded.rejected == {"bad_json": 1, "not_an_object": 1}


def test_parts_of_a_docker_line_are_joined():
    parts = [("a ", "stdout"), ("x\n", "stderr"), ("b\n", "stdout"), ("c\n", "stdout")]
    data = lines(*({"log": log, "stream": stream, "time": "2026-11-16T05:00:00Z"} for log, stream in parts))
    assert [row["message"] for row in log_rows(data)] == ["x", "a b", "c"]
    # Without any newline, this is another writer, whose lines are whole.
    data = lines(*({"log": log.strip(), "stream": stream, "time": "2026-11-16T05:00:00Z"} for log, stream in parts))
    assert [row["message"] for row in log_rows(data)] == ["a", "x", "b", "c"]


def test_lists_within_a_record_are_no_batch():
    (row,) = log_rows(lines({"user": "u", "items": [{"id": 1}], "when": 5}), fallback_time_ns=9)
    assert row["attr_items"] == '[{"id":1}]'


def test_an_array_and_a_pretty_document_are_read():
    assert len(log_rows(b'[{"ts":1},{"ts":2}]')) == 2
    assert len(log_rows(b'{\n "ts": 1,\n "msg": "m"\n}\n')) == 1


def test_limits_hold_for_lines():
    data = lines({"ts": 1, "msg": "x" * 100}, {"a": 1, "b": 2, "c": 3, "d": 4, "ts": 2, "msg": "m"})
    decoded = read_object(data, LOGS, limits=Limits(line_bytes=80, attributes_per_row=3))
    assert decoded.tables[""].num_rows == 1
    assert decoded.rejected == {"line_bytes": 1}
    assert decoded.cut == {"attributes_per_row": 1}
    # Fields do not count as attributes, and are found behind them.
    (row,) = decoded.tables[""].to_pylist()
    assert (row["timestamp"].value, row["message"], row["attr_c"]) == (2_000_000_000, "m", 3)
    assert "attr_d" not in row
    deep = b'{"ts":1,"a":' + b'{"a":' * 70 + b"1" + b"}" * 71
    assert read_object(deep + b'\n{"ts":1}', LOGS).rejected == {"nesting_depth": 1}
    arrays = b'{"ts":1,"a":' + b"[" * 70 + b"]" * 70 + b"}"
    assert read_object(arrays + b'\n{"ts":1}', LOGS).rejected == {"nesting_depth": 1}
    named = read_object(b'{"ts":1,"' + b"k" * 5_000 + b'":1}', LOGS)
    assert named.cut == {"key_bytes": 1}
    assert named.tables[""].column_names[-1] == "attr_" + "k" * 1_024


def test_metrics_are_samples_and_series():
    data = lines(
        {"name": "cpu.load", "timestamp": 1763200000, "value": 1.5, "labels": {"host": "a"}, "type": "gauge"},
        {"name": "cpu.load", "timestamp": 1763200010, "value": "2", "labels": {"host": "a"}, "type": "gauge"},
        {"name": "cpu.load", "timestamp": 1763200010, "value": 3, "labels": {"host": "b"}, "unit": "1"},
        {"name": "cpu.load", "timestamp": 1763200010, "value": "high"},
        {"timestamp": 1763200010, "value": 1},
    )
    decoded = read_object(data, METRICS)
    samples, series = decoded.tables[""].to_pylist(), decoded.tables[".series"].to_pylist()
    tids = [LabelSet.of({"__name__": "cpu_load", "host": host}).tid() for host in "ab"]
    assert [(s["tid"], s["value"]) for s in samples] == [(tids[0], 1.5), (tids[0], 2.0), (tids[1], 3.0)]
    assert [(s["tid"], s["labels"], s["type"], s["otel_name"]) for s in series] == [
        (tids[0], [("host", "a")], "gauge", "cpu.load"),
        (tids[1], [("host", "b")], "unknown", "cpu.load"),
    ]
    assert decoded.rejected == {"metric_without_value": 1, "metric_without_name": 1}


@pytest.mark.parametrize(
    ("rows", "series"),
    [
        # Values that no metric type, unit or sentence is: labels.
        ([{"type": "ssd"}, {"type": "hdd"}], [{"type": "ssd"}, {"type": "hdd"}]),
        (
            [{"kind": "read", "unit": "sda1", "description": "x"}],
            [{"kind": "read", "unit": "sda1", "description": "x"}],
        ),
        # Metadata, unless it tells series of one metric apart.
        ([{"type": "counter", "unit": "By", "description": "Bytes read."}], [{}]),
        ([{"type": "gauge"}, {"type": "counter"}], [{"type": "gauge"}, {"type": "counter"}]),
        ([{"metric_type": "gauge", "help": "x"}], [{}]),
    ],
)
def test_metadata_is_no_label_and_labels_do_not_merge(rows, series):
    records = [{"name": "io", "timestamp": 1763200000, "value": i, **row} for i, row in enumerate(rows)]
    decoded = read_object(lines(*records), METRICS)
    assert [dict(row["labels"]) for row in decoded.tables[".series"].to_pylist()] == series
    assert decoded.tables[""].num_rows == len(rows)


def test_spans_may_come_as_records():
    record = {
        "trace_id": TRACE_ID,
        "span_id": "00f067aa0ba902b7",
        "name": "GET",
        "start_time": 5,
        "end_time": 7,
        "k": 1,
    }
    decoded = read_object(lines({**record, "kind": "SPAN_KIND_SERVER"}, {"name": "lost", "start": 1}), TRACES)
    (row,) = decoded.tables[""].to_pylist()
    assert (row["duration_ns"], row["kind"], row["attr_k"]) == (2_000_000_000, "server", 1)
    assert decoded.rejected == {"no_trace_id": 1}


def test_an_object_without_a_usable_row_is_refused():
    with pytest.raises(BadInput, match=r"no_timestamp \(2\)"):
        read_object(lines({"a": 1}, {"a": 2}), LOGS)
    decoded = read_object(lines({"a": 1}, {"a": 2}), LOGS, options=Options(fallback_time_ns=9))
    assert [value.value for value in decoded.tables[""].column("timestamp").to_pylist()] == [9, 9]


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text(max_size=5)
)
RECORDS = st.dictionaries(
    st.text("ab.", min_size=1, max_size=3),
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner)
    ),
    max_size=4,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=4))
def test_no_record_is_lost_whatever_it_holds(records):
    data = "\n".join(json.dumps({"ts": 1, **record}) for record in records)
    decoded = read_object(data.encode(), LOGS, "x.json")
    assert decoded.tables[""].num_rows == len(records)
