from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, given, settings
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from lakerunner.formats.limits import Limits
from lakerunner.formats.otlp.json_to_protobuf import to_wire
from lakerunner.formats.otlp.wire import ROOTS
from lakerunner.formats.read import read_object
from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.signals import LOGS, METRICS, TRACES
from tests.formats.otlp_samples import log_batches, metric_batches, trace_batches
from tests.formats.test_otlp_logs import batches as log_messages
from tests.formats.test_otlp_traces import batches as trace_messages

BATCHES = {
    "logs": next(log_batches(40)),
    "metrics": next(metric_batches(48, series=48)),
    "traces": next(trace_batches(40)),
}
SIGNALS = {"logs": LOGS, "metrics": METRICS, "traces": TRACES}


def otlp_json(message: Any) -> Any:
    """Protobuf's JSON with OTLP's exceptions: hex ids, enums as numbers."""
    document = MessageToDict(message, use_integers_for_enums=True)
    pending = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, dict):
            for key in ("traceId", "spanId", "parentSpanId"):
                if isinstance(item.get(key), str):
                    item[key] = base64.b64decode(item[key]).hex().upper()
            pending.extend(item.values())
    return document


@pytest.mark.parametrize("signal", sorted(BATCHES))
def test_json_and_protobuf_are_one(signal):
    message = BATCHES[signal]
    from_json = read_object(orjson.dumps(otlp_json(message)), SIGNALS[signal])
    from_protobuf = read_object(message.SerializeToString(), SIGNALS[signal])
    assert (from_json.format, from_protobuf.format) == ("otlp-json", "otlp-protobuf")
    assert dict(from_json.tables) == dict(from_protobuf.tables)
    assert not from_json.rejected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log_messages())
def test_every_log_message_survives_the_way_through_json(message):
    wire = to_wire(orjson.loads(orjson.dumps(otlp_json(message))), "logs", Limits())
    # As text, in which a NaN is a NaN: JSON has no place for the bits that tell one from another.
    assert str(LogsData.FromString(wire)) == str(message)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trace_messages())
def test_every_trace_message_survives_the_way_through_json(message):
    wire = to_wire(orjson.loads(orjson.dumps(otlp_json(message))), "traces", Limits())
    assert str(ROOTS["traces"].FromString(wire)) == str(message)


def test_metrics_of_every_kind_survive():
    wire = to_wire(otlp_json(BATCHES["metrics"]), "metrics", Limits())
    assert MetricsData.FromString(wire) == BATCHES["metrics"]


def one_record(record: dict[str, Any]) -> dict[str, Any]:
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


GOOD = orjson.dumps(one_record({"timeUnixNano": "1763200000000000000", "body": {"stringValue": "good"}}))


def test_requests_may_come_one_a_line_and_bad_ones_are_counted():
    bad = orjson.dumps(one_record({"timeUnixNano": "soon"}))
    decoded = read_object(b"\n".join([GOOD, b"{rubbish", bad, b'{"other":1}', b"", GOOD]), LOGS, "logs.json")
    assert decoded.format == "otlp-json"
    assert decoded.tables[""].column("message").to_pylist() == ["good", "good"]
    assert decoded.rejected == {"bad_json": 1, "bad_otlp_json": 1, "not_an_export_request": 1}
    (sample,) = decoded.samples["bad_otlp_json"]
    assert sample.where == "line 3, resourceLogs.scopeLogs.logRecords.timeUnixNano"
    assert "soon" in sample.excerpt


def test_a_pretty_printed_request_is_one_document():
    pretty = orjson.dumps(orjson.loads(GOOD), option=orjson.OPT_INDENT_2)
    assert read_object(pretty, LOGS).tables[""].num_rows == 1


def test_snake_case_and_numbers_are_taken_too():
    record = {"time_unix_nano": 1763200000000000000, "severity_number": "SEVERITY_NUMBER_WARN", "unknown": [1]}
    request = {"resource_logs": [{"scope_logs": [{"log_records": [record]}]}]}
    (row,) = read_object(orjson.dumps(request), LOGS).tables[""].to_pylist()
    assert (row["severity"], row["severity_number"]) == ("WARN", 13)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"timeUnixNano": -1}, "out of range"),
        ({"timeUnixNano": "9" * 30}, "whole number"),
        ({"timeUnixNano": True}, "whole number"),
        ({"timeUnixNano": 1.5}, "whole number"),
        ({"severityText": 5}, "expected a string"),
        ({"attributes": {}}, "expected an array"),
        ({"body": "text"}, "expected an object"),
        ({"traceId": "xyz"}, "hex"),
        ({"body": {"bytesValue": "*"}}, "base64"),
        ({"body": {"boolValue": "true"}}, "true or false"),
        ({"body": {"doubleValue": "wide"}}, "number"),
    ],
)
def test_a_wrong_value_is_named(record, reason):
    with pytest.raises(BadInput, match=reason):
        to_wire(one_record(record), "logs", Limits())


def test_the_wrong_signal_is_refused():
    with pytest.raises(BadInput, match="holds OTLP logs"):
        read_object(GOOD, TRACES)


def test_nesting_is_limited():
    value: Any = {"intValue": "1"}
    for _ in range(100):
        value = {"arrayValue": {"values": [value]}}
    with pytest.raises(LimitHit, match="nesting_depth"):
        to_wire(one_record({"body": value}), "logs", Limits())
