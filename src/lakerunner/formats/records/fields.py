"""Well-known keys of common loggers for each of our columns, in order of preference.

Keys are compared without regard to case and to the characters `_`, `-`, `.` and blank, so `trace_id` also stands for
`traceId`, `TraceID` and `trace.id`. Nested keys are joined by dots.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

#: Where a container runtime's own time goes. It counts only where the line inside has none.
OUTER_TIME = "container.time"

LOG_FIELDS: Mapping[str, tuple[str, ...]] = {
    "timestamp": (
        "@timestamp",
        "timestamp",
        "time",
        "ts",
        "datetime",
        "time_unix_nano",
        "time_unix",
        "time_millis",
        "asctime",
        "@t",
        "t.$date",
        "t",
        "event_time",
        "_time",
        "__REALTIME_TIMESTAMP",
        "_SOURCE_REALTIME_TIMESTAMP",
        "record.time.timestamp",
        "record.time.repr",
        "requestReceivedTimestamp",
        "stageTimestamp",
        "receiveTimestamp",
        "time_iso8601",
        "time_local",
        "time_generated",
        "time_created",
        "log_time",
        "date",
        "event_timestamp",
        "last_timestamp",
        "query_timestamp",
        "created_at",
        "created",
        "epoch",
        "start_time",
        OUTER_TIME,
    ),
    "observed_timestamp": ("observed_timestamp", "observed_time_unix_nano", "event.ingested", OUTER_TIME),
    "service_name": (
        "service_name",
        "service",
        "service_context.service",
        "app_name",
        "application_name",
        "app_role_name",
        "app",
        "application",
        "SYSLOG_IDENTIFIER",
        "program",
        "programname",
        "ident",
        "kubernetes.labels.app.kubernetes.io/name",
        "kubernetes.labels.app",
        "kubernetes.container_name",
        "container_name",
        "resource.labels.service_name",
        "resource.labels.container_name",
        "resource.labels.function_name",
        "resource.labels.module_id",
        "_SYSTEMD_UNIT",
    ),
    "severity": (
        "severity",
        "level",
        "log.level",
        "severity_text",
        "level_name",
        "lvl",
        "@l",
        "record.level.name",
        "error_severity",
        "severity_label",
        "syslog_severity",
        # MongoDB's and Datadog's keys. Elsewhere they mean something else, so only level names count as their values.
        "s",
        "status",
    ),
    "severity_number": ("severity_number",),
    "message": (
        "message",
        "msg",
        "@m",
        "rendered_message",
        "@message",
        "body",
        "body.string_value",
        "log",
        "text_payload",
        "record.message",
        "short_message",
        "event",
        "text",
        "@mt",
        "message_template",
        "log_message",
        "content",
        "line",
        "_raw",
        "raw",
    ),
    "event_name": ("event_name",),
    "trace_id": (
        "trace_id",
        "otel_trace_id",
        "dd.trace_id",
        "trace",
        "logging.googleapis.com/trace",
        "x_b3_trace_id",
        "xray_trace_id",
    ),
    "span_id": ("span_id", "otel_span_id", "dd.span_id", "logging.googleapis.com/spanId", "x_b3_span_id"),
    "flags": ("flags", "trace_flags"),
    "dropped_attributes_count": ("dropped_attributes_count",),
}

#: Objects in which loggers put the context of a record: a service, a trace or a span is also looked for in these.
WRAPPERS = (
    "dd",
    "otel",
    "attributes",
    "resource",
    "resource.attributes",
    "resource_attributes",
    "jsonPayload",
    "properties",
    "context",
    "context_map",
    "mdc",
    "fields",
    "span",
    "extra",
    "labels",
    "record.extra",
)
#: Objects that hold the record itself; the time, the level and the message are also looked for in these.
BODIES = ("attributes", "jsonPayload", "fields", "event", "payload", "data", "content")
_WRAPPERS_OF: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("service_name", "trace_id", "span_id"), WRAPPERS),
    **dict.fromkeys(("timestamp", "severity", "message"), BODIES),
}

METRIC_FIELDS: Mapping[str, tuple[str, ...]] = {
    "timestamp": LOG_FIELDS["timestamp"],
    "metric_name": ("metric_name", "name", "metric", "__name__"),
    "value": ("value", "gauge", "counter", "val", "v"),
    "start_timestamp": ("start_timestamp", "start_time_unix_nano", "start_time_unix", "start_time"),
    # `type`, `kind`, `unit` and `description` may also be labels: see `metrics.py`.
    "type": ("metric_type", "type", "kind"),
    "unit": ("metric_unit", "unit"),
    "description": ("metric_description", "help", "description"),
}

TRACE_FIELDS: Mapping[str, tuple[str, ...]] = {
    "trace_id": LOG_FIELDS["trace_id"],
    "span_id": LOG_FIELDS["span_id"],
    "parent_span_id": ("parent_span_id", "parent_id"),
    "name": ("name", "span_name", "operation_name", "resource"),
    "kind": ("kind", "span_kind"),
    "status_code": ("status_code",),
    "status_message": ("status_message",),
    "start_timestamp": (
        "start_timestamp",
        "start_time_unix_nano",
        "start_time",
        "start",
        *LOG_FIELDS["timestamp"],
    ),
    "end_timestamp": ("end_timestamp", "end_time_unix_nano", "end_time", "end"),
    "duration_ns": ("duration_ns", "duration_nano", "duration_nanos"),
    "service_name": LOG_FIELDS["service_name"],
    "trace_state": ("trace_state",),
    "flags": LOG_FIELDS["flags"],
}

FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "logs": LOG_FIELDS,
    "metrics": METRIC_FIELDS,
    "traces": TRACE_FIELDS,
}

#: Names of fields in settings, where they differ from the columns. Spans begin at `start_timestamp`.
SETTING_NAMES: Mapping[str, tuple[str, ...]] = {
    "time": ("timestamp", "start_timestamp"),
    "level": ("severity",),
    "service": ("service_name",),
    "message": ("message",),
    "trace_id": ("trace_id",),
    "span_id": ("span_id",),
    "name": ("metric_name", "name"),
    "value": ("value",),
}

#: Nested objects that often hold a metric's labels. The label name is what follows the prefix.
LABEL_PREFIXES = ("labels.", "tags.", "attributes.", "dimensions.")
#: Objects that hold attributes, by the level that they belong to. They leave no trace in an attribute's name.
ATTRIBUTE_PREFIXES: Mapping[str, tuple[str, ...]] = {
    "resource": ("resource.attributes.", "resourceattributes.", "resource_attributes.", "resource."),
    "scope": ("scope.attributes.", "scopeattributes.", "scope_attributes.", "scope."),
    "attr": ("attr.attributes.", "logattributes.", "spanattributes.", "attributes.", "attr."),
}

_SEPARATORS = str.maketrans("", "", "_-. ")


@lru_cache(maxsize=65_536)
def canonical(key: str) -> str:
    """Return the form in which keys are compared.

    >>> canonical("Trace.ID"), canonical("@timestamp")
    ('traceid', '@timestamp')
    """
    return key.lower().translate(_SEPARATORS)


def keys_by_field(signal: str, configured: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the keys to try for each of our fields; the configured ones, separated by commas, come first.

    >>> keys_by_field("logs", {"message": "what"})["message"][:2]
    ('what', 'message')
    """
    found = {}
    for name, keys in FIELDS[signal].items():
        first = tuple(key.strip() for key in configured.get(name, "").split(",") if key.strip())
        wrapped = tuple(f"{wrapper}.{key}" for wrapper in _WRAPPERS_OF.get(name, ()) for key in keys[:3])
        found[name] = (*first, *keys, *wrapped)
    return found


@lru_cache(maxsize=64)
def _known(signal: str, field: str, configured: tuple[tuple[str, str], ...]) -> frozenset[str]:
    fields = keys_by_field(signal, dict(configured))
    return frozenset(canonical(key) for name, keys in fields.items() if field in ("", name) for key in keys)


def is_key_of(signal: str, key: str, configured: Mapping[str, str], field: str = "") -> bool:
    """Return whether a key may hold the field, or any field if none is named."""
    return canonical(key) in _known(signal, field, tuple(sorted(configured.items())))
