"""Well-known keys of common loggers for each of our columns, in order of preference.

Covered: zap, logback, log4j2, pino, bunyan, python-json-logger, structlog, Serilog, Fluent Bit, Vector, Datadog, ECS,
Google Cloud, journald, and the column names of our own tables. Nested keys are joined by dots.
"""

from __future__ import annotations

from collections.abc import Mapping

LOG_FIELDS: Mapping[str, tuple[str, ...]] = {
    "timestamp": (
        "@timestamp",
        "timestamp",
        "time",
        "ts",
        "datetime",
        "date",
        "_time",
        "eventTime",
        "event_time",
        "asctime",
        "timeMillis",
        "timeUnixNano",
        "time_unix_nano",
        "@t",
        "t",
    ),
    "observed_timestamp": ("observed_timestamp", "observedTimeUnixNano", "observed_time_unix_nano", "event.ingested"),
    "service_name": (
        "service_name",
        "service.name",
        "resource.service.name",
        "serviceName",
        "service",
        "dd.service",
        "app",
        "application",
        "kubernetes.labels.app",
        "kubernetes.container_name",
    ),
    "severity": (
        "severity",
        "level",
        "log.level",
        "severity_text",
        "severityText",
        "levelname",
        "level_name",
        "loglevel",
        "logLevel",
        "lvl",
        "@l",
        # Datadog's key. Elsewhere it is the status of a response, so only level names are accepted as its value.
        "status",
    ),
    "severity_number": ("severity_number", "severityNumber"),
    "message": ("message", "msg", "log", "body", "@message", "@mt", "short_message", "MESSAGE", "text", "event"),
    "event_name": ("event_name", "eventName"),
    "trace_id": ("trace_id", "traceId", "traceID", "trace.id", "otelTraceID", "traceid", "dd.trace_id"),
    "span_id": ("span_id", "spanId", "spanID", "span.id", "otelSpanID", "spanid", "dd.span_id"),
    "flags": ("flags", "trace_flags", "traceFlags"),
    "dropped_attributes_count": ("dropped_attributes_count", "droppedAttributesCount"),
}

METRIC_FIELDS: Mapping[str, tuple[str, ...]] = {
    "timestamp": LOG_FIELDS["timestamp"],
    "metric_name": ("metric_name", "name", "metric", "__name__", "metricName"),
    "value": ("value", "gauge", "counter", "val", "v"),
    "start_timestamp": ("start_timestamp", "startTimeUnixNano", "start_time"),
    "type": ("type", "metric_type", "kind"),
    "unit": ("unit",),
    "description": ("description", "help"),
}

TRACE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "trace_id": LOG_FIELDS["trace_id"],
    "span_id": LOG_FIELDS["span_id"],
    "parent_span_id": ("parent_span_id", "parentSpanId", "parentSpanID", "parent_id", "parent.id", "parentId"),
    "name": ("name", "span_name", "operationName", "operation_name", "resource"),
    "kind": ("kind", "span_kind", "spanKind", "span.kind"),
    "status_code": ("status_code", "statusCode", "status.code"),
    "status_message": ("status_message", "statusMessage", "status.message"),
    "start_timestamp": (
        "start_timestamp",
        "startTimeUnixNano",
        "start_time_unix_nano",
        "start_time",
        "start",
        *LOG_FIELDS["timestamp"],
    ),
    "end_timestamp": ("end_timestamp", "endTimeUnixNano", "end_time_unix_nano", "end_time", "end"),
    "duration_ns": ("duration_ns", "durationNano", "duration_nano", "durationNanos"),
    "service_name": LOG_FIELDS["service_name"],
    "trace_state": ("trace_state", "traceState"),
    "flags": LOG_FIELDS["flags"],
}

FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "logs": LOG_FIELDS,
    "metrics": METRIC_FIELDS,
    "traces": TRACE_FIELDS,
}

#: Nested objects that often hold a metric's labels. The label name is what follows the prefix.
LABEL_PREFIXES = ("labels.", "tags.", "attributes.", "dimensions.")
