"""The spans of OTLP export requests as plain Python objects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakerunner.query.traceql import ast

#: A type of TraceQL, or "array", and what it holds.
Value = tuple[str, Any]
NIL: Value = (ast.NIL, None)


@dataclass(frozen=True, slots=True)
class Item:
    """An event or a link."""

    fields: Mapping[str, Value]
    attributes: Mapping[str, Value]


@dataclass(eq=False, slots=True)
class Span:
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    fields: dict[str, Value]
    attributes: Mapping[str, Value]
    resource: Mapping[str, Value]
    scope: Mapping[str, Value]
    events: Sequence[Item]
    links: Sequence[Item]
    trace: Trace = field(init=False)


@dataclass(eq=False, slots=True)
class Trace:
    trace_id: str
    spans: list[Span] = field(default_factory=list)
    by_id: dict[str, Span] = field(default_factory=dict)

    @property
    def start_ns(self) -> int:
        return min(span.start_ns for span in self.spans)

    @property
    def end_ns(self) -> int:
        return max(span.end_ns for span in self.spans)

    def parent(self, span: Span) -> Span | None:
        return self.by_id.get(span.parent_id)

    def ancestors(self, span: Span) -> Iterable[Span]:
        at = self.parent(span)
        while at is not None:
            yield at
            at = self.parent(at)


def traces_of(requests: Iterable[bytes]) -> list[Trace]:
    traces: dict[str, Trace] = {}
    for request in requests:
        for batch in json.loads(request)["resourceSpans"]:
            resource = _attributes(batch.get("resource", {}))
            for group in batch["scopeSpans"]:
                for document in group["spans"]:
                    span = _span(document, resource, group.get("scope", {}))
                    span.trace = traces.setdefault(span.trace_id, Trace(span.trace_id))
                    if span.span_id not in span.trace.by_id:
                        span.trace.by_id[span.span_id] = span
                        span.trace.spans.append(span)
    for trace in traces.values():
        _tell_the_trace(trace)
    return list(traces.values())


def _span(document: Mapping[str, Any], resource: Mapping[str, Value], scope: Mapping[str, Any]) -> Span:
    start_ns, end_ns = int(document["startTimeUnixNano"]), int(document["endTimeUnixNano"])
    status = document.get("status", {})
    trace_id, parent_id = document["traceId"].rjust(32, "0"), document.get("parentSpanId", "")
    fields: dict[str, Value] = {
        "name": (ast.STRING, document.get("name", "")),
        "kind": (ast.KIND, ast.KINDS[document.get("kind", 0)]),
        "status": (ast.STATUS, ast.STATUSES[status.get("code", 0)]),
        "statusMessage": (ast.STRING, status.get("message", "")),
        "duration": (ast.DURATION, end_ns - start_ns),
        "span:id": (ast.STRING, document["spanId"]),
        "span:parentID": (ast.STRING, parent_id),
        "trace:id": (ast.STRING, trace_id),
        "instrumentation:name": (ast.STRING, scope.get("name", "")),
        "instrumentation:version": (ast.STRING, scope.get("version", "")),
    }
    events = [
        Item(
            {
                "event:name": (ast.STRING, event.get("name", "")),
                "event:timeSinceStart": (ast.DURATION, int(event.get("timeUnixNano", 0)) - start_ns),
            },
            _attributes(event),
        )
        for event in document.get("events", ())
    ]
    links = [
        Item(
            {"link:traceID": (ast.STRING, link["traceId"]), "link:spanID": (ast.STRING, link["spanId"])},
            _attributes(link),
        )
        for link in document.get("links", ())
    ]
    attributes = _attributes(document)
    return Span(
        *(trace_id, document["spanId"], parent_id, start_ns, end_ns),
        *(fields, attributes, resource, _attributes(scope), events, links),
    )


def _tell_the_trace(trace: Trace) -> None:
    """What a span knows of its whole trace."""
    children: dict[str, int] = {}
    for span in trace.spans:
        children[span.parent_id] = children.get(span.parent_id, 0) + 1
    for span in trace.spans:
        span.fields["traceDuration"] = (ast.DURATION, trace.end_ns - trace.start_ns)
        span.fields["span:childCount"] = (ast.INT, children.get(span.span_id, 0))


def _attributes(owner: Mapping[str, Any]) -> dict[str, Value]:
    values = {pair["key"]: _value(pair.get("value", {})) for pair in owner.get("attributes", ())}
    return {key: value for key, value in values.items() if value != NIL}


def _value(value: Mapping[str, Any]) -> Value:
    for kind, found in value.items():
        match kind:
            case "stringValue":
                return ast.STRING, found
            case "boolValue":
                return ast.BOOL, found
            case "intValue":
                return ast.INT, int(found)
            case "doubleValue":
                return ast.FLOAT, float(found)
            case "arrayValue":
                items = [_value(each) for each in found.get("values", ())]
                if not items or (len({kind for kind, _ in items}) == 1 and items[0][0] not in (ast.NIL, "array")):
                    return "array", items
    return NIL
