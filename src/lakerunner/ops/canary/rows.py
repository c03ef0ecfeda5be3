"""The canary's known rows: the OTLP object of a round and signal, whose rows differ from all others."""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from lakerunner.index.canary_rounds import CanaryRound
from lakerunner.model.time import NS_PER_MS

SERVICE = "lakerunner-canary"
METRIC = "lakerunner_canary_round"


def message_prefix(round_id: int) -> str:
    """What the log lines of a round begin with. The number of the row follows."""
    return f"canary round {round_id} row "


def trace_id(round_id: int) -> bytes:
    return b"canary" + round_id.to_bytes(10, "big")


def encode(each: CanaryRound) -> bytes:
    """The object of a round, as OTLP protobuf."""
    return _ENCODERS[each.signal](each)


def _logs(each: CanaryRound) -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add(resource=_resource()).scope_logs.add().log_records
    for nth in range(each.rows):
        record = records.add(time_unix_nano=each.event_ns + nth, severity_number=9, severity_text="INFO")
        record.body.string_value = f"{message_prefix(each.round_id)}{nth}"
    return request.SerializeToString()


def _metrics(each: CanaryRound) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add(resource=_resource()).scope_metrics.add().metrics.add(name=METRIC)
    for nth in range(each.rows):
        point = metric.gauge.data_points.add(time_unix_nano=each.event_ns, as_double=float(each.round_id))
        point.attributes.append(KeyValue(key="row", value=AnyValue(string_value=str(nth))))
    return request.SerializeToString()


def _traces(each: CanaryRound) -> bytes:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add(resource=_resource()).scope_spans.add().spans
    for nth in range(each.rows):
        spans.add(
            trace_id=trace_id(each.round_id),
            span_id=(nth + 1).to_bytes(8, "big"),
            name="canary",
            start_time_unix_nano=each.event_ns,
            end_time_unix_nano=each.event_ns + NS_PER_MS,
        )
    return request.SerializeToString()


_ENCODERS: dict[str, Callable[[CanaryRound], bytes]] = {"logs": _logs, "metrics": _metrics, "traces": _traces}


def _resource() -> Resource:
    return Resource(attributes=[KeyValue(key="service.name", value=AnyValue(string_value=SERVICE))])
