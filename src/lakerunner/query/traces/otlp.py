"""The spans of a trace as OTLP: protobuf, or JSON as Tempo writes it (ids in base64, 64-bit integers as text)."""

from __future__ import annotations

import base64
import math
from typing import Any

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status, TracesData

from lakerunner.formats.typed_attributes import Level, python_value
from lakerunner.formats.typed_json import from_typed_json
from lakerunner.query.traces.spans import ATTRIBUTES

_KINDS = {
    "internal": Span.SPAN_KIND_INTERNAL,
    "server": Span.SPAN_KIND_SERVER,
    "client": Span.SPAN_KIND_CLIENT,
    "producer": Span.SPAN_KIND_PRODUCER,
    "consumer": Span.SPAN_KIND_CONSUMER,
}
_STATUSES = {"unset": Status.STATUS_CODE_UNSET, "ok": Status.STATUS_CODE_OK, "error": Status.STATUS_CODE_ERROR}


def to_otlp(spans: pa.Table, *, flags: bool = True) -> TracesData:
    """Return the spans under their resources and scopes. Without `flags`, as Tempo has them: it drops the flags."""
    data = TracesData()
    groups: dict[tuple[Any, ...], ScopeSpans] = {}
    resources: dict[tuple[Any, ...], Any] = {}
    plain = _times_as_ints(spans)
    for row in plain.to_pylist():
        levels = _by_level(row[ATTRIBUTES] or [])
        of_resource, of_scope = levels[Level.RESOURCE], (levels[Level.SCOPE_FIELD], levels[Level.SCOPE])
        key = (_key(of_resource), _key(of_scope[0]), _key(of_scope[1]))
        group = groups.get(key)
        if group is None:
            parent = resources.get(key[:1])
            if parent is None:
                parent = resources[key[:1]] = data.resource_spans.add()
                parent.resource.attributes.extend(map(_pair, of_resource))
            group = groups[key] = parent.scope_spans.add()
            for name, _, value in of_scope[0]:
                setattr(group.scope, name, value)
            group.scope.attributes.extend(map(_pair, of_scope[1]))
        group.spans.append(_span(row, levels[Level.SPAN], flags=flags))
    return data


def _times_as_ints(spans: pa.Table) -> pa.Table:
    """Return the table with times in nanoseconds: Python's own times have microseconds."""
    arrays = []
    for column in spans.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        elif pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
            fields = list(column.type.value_type)
            if any(pa.types.is_timestamp(each.type) for each in fields):
                plain = [
                    pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type)
                    for each in fields
                ]
                column = column.cast(pa.list_(pa.struct(plain)))
        arrays.append(column)
    return pa.table(dict(zip(spans.column_names, arrays, strict=True)))


def _by_level(attributes: list[dict[str, Any]]) -> dict[int, list[tuple[str, int, str]]]:
    found: dict[int, list[tuple[str, int, str]]] = {level: [] for level in Level}
    for each in attributes:
        found[each["level"]].append((each["key"], each["type"], each["value"]))
    return found


def _key(attributes: list[tuple[str, int, str]]) -> tuple[Any, ...]:
    return tuple(sorted(attributes))


def _span(row: dict[str, Any], attributes: list[tuple[str, int, str]], *, flags: bool) -> Span:
    start_ns = row["start_timestamp"]
    span = Span(
        trace_id=_raw(row["trace_id"]),
        span_id=_raw(row["span_id"]),
        parent_span_id=_raw(row["parent_span_id"]),
        trace_state=row["trace_state"] or "",
        name=row["name"] or "",
        kind=_KINDS.get(row["kind"] or "", Span.SPAN_KIND_UNSPECIFIED),
        start_time_unix_nano=start_ns,
        end_time_unix_nano=max(0, start_ns + row["duration_ns"]),
        attributes=map(_pair, attributes),
        dropped_attributes_count=row["dropped_attributes_count"] or 0,
        dropped_events_count=row["dropped_events_count"] or 0,
        dropped_links_count=row["dropped_links_count"] or 0,
        flags=(row["flags"] or 0) if flags else 0,
    )
    code = _STATUSES.get(row["status_code"] or "", Status.STATUS_CODE_UNSET)
    if code or row["status_message"]:
        span.status.code, span.status.message = code, row["status_message"] or ""
    for event in row["events"] or ():
        span.events.add(
            time_unix_nano=event["timestamp"] or 0,
            name=event["name"] or "",
            attributes=_pairs_of(event["attributes"]),
            dropped_attributes_count=event["dropped_attributes_count"] or 0,
        )
    for link in row["links"] or ():
        span.links.add(
            trace_id=_raw(link["trace_id"]),
            span_id=_raw(link["span_id"]),
            trace_state=link["trace_state"] or "",
            attributes=_pairs_of(link["attributes"]),
            dropped_attributes_count=link["dropped_attributes_count"] or 0,
            flags=(link["flags"] or 0) if flags else 0,
        )
    return span


def _raw(digits: str | None) -> bytes:
    """The bytes of a stored id. One that is no hex came from a file that is not OTLP, and is kept as text."""
    try:
        return bytes.fromhex(digits or "")
    except ValueError:
        return (digits or "").encode()


def _pair(attribute: tuple[str, int, str]) -> KeyValue:
    key, code, text = attribute
    return KeyValue(key=key, value=_any(python_value(code, text)))


def _pairs_of(document: str | None) -> list[KeyValue]:
    """The attributes of an event or link, stored as JSON."""
    if not document:
        return []
    try:
        found = from_typed_json(document)
    except ValueError:
        return [KeyValue(key="attributes", value=AnyValue(string_value=document))]
    return [KeyValue(key=key, value=_any(value)) for key, value in found.items()] if isinstance(found, dict) else []


def _any(value: Any) -> AnyValue:
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value) if -(1 << 63) <= value < 1 << 63 else AnyValue(double_value=float(value))
        case float():
            return AnyValue(double_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case list():
            return AnyValue(array_value=ArrayValue(values=map(_any, value)))
        case dict():
            pairs = [KeyValue(key=key, value=_any(member)) for key, member in value.items()]
            return AnyValue(kvlist_value=KeyValueList(values=pairs))
        case _:
            return AnyValue(string_value=str(value))


# -- JSON -----------------------------------------------------------------------------------------------------------


def resource_spans_json(data: TracesData) -> list[dict[str, Any]]:
    """Return the `resourceSpans` (of Tempo's first API: `batches`) as JSON values."""
    return [
        {
            "resource": _present({"attributes": _pairs_json(parent.resource.attributes)}),
            "scopeSpans": [
                {
                    "scope": _present(
                        {
                            "name": child.scope.name,
                            "version": child.scope.version,
                            "attributes": _pairs_json(child.scope.attributes),
                        }
                    ),
                    "spans": [_span_json(span) for span in child.spans],
                }
                for child in parent.scope_spans
            ],
        }
        for parent in data.resource_spans
    ]


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in ("", 0, None) and value != []}


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _span_json(span: Span) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if span.status.message:
        status["message"] = span.status.message
    if span.status.code:
        status["code"] = Status.StatusCode.Name(span.status.code)
    found = _present(
        {
            "traceId": _base64(span.trace_id),
            "spanId": _base64(span.span_id),
            "traceState": span.trace_state,
            "parentSpanId": _base64(span.parent_span_id),
            "flags": span.flags,
            "name": span.name,
            "kind": Span.SpanKind.Name(span.kind) if span.kind else "",
            "startTimeUnixNano": str(span.start_time_unix_nano),
            "endTimeUnixNano": str(span.end_time_unix_nano),
            "attributes": _pairs_json(span.attributes),
            "droppedAttributesCount": span.dropped_attributes_count,
            "events": [
                _present(
                    {
                        "timeUnixNano": str(event.time_unix_nano),
                        "name": event.name,
                        "attributes": _pairs_json(event.attributes),
                        "droppedAttributesCount": event.dropped_attributes_count,
                    }
                )
                for event in span.events
            ],
            "droppedEventsCount": span.dropped_events_count,
            "links": [
                _present(
                    {
                        "traceId": _base64(link.trace_id),
                        "spanId": _base64(link.span_id),
                        "traceState": link.trace_state,
                        "attributes": _pairs_json(link.attributes),
                        "droppedAttributesCount": link.dropped_attributes_count,
                        "flags": link.flags,
                    }
                )
                for link in span.links
            ],
            "droppedLinksCount": span.dropped_links_count,
        }
    )
    return {**found, "status": status}


def _pairs_json(pairs: Any) -> list[dict[str, Any]]:
    return [{"key": pair.key, "value": _any_json(pair.value)} for pair in pairs]


def _any_json(value: AnyValue) -> dict[str, Any]:
    match value.WhichOneof("value"):
        case "string_value":
            return {"stringValue": value.string_value}
        case "bool_value":
            return {"boolValue": value.bool_value}
        case "int_value":
            return {"intValue": str(value.int_value)}
        case "double_value":
            return {"doubleValue": _double_json(value.double_value)}
        case "bytes_value":
            return {"bytesValue": _base64(value.bytes_value)}
        case "array_value":
            return {"arrayValue": {"values": [_any_json(item) for item in value.array_value.values]}}
        case "kvlist_value":
            return {"kvlistValue": {"values": _pairs_json(value.kvlist_value.values)}}
        case _:
            return {}


def _double_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
