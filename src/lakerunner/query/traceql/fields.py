"""The intrinsic fields of TraceQL: their spellings, types, and where their values come from."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.query.traceql import ast


@dataclass(frozen=True, slots=True)
class IntrinsicInfo:
    #: The canonical spelling, as queries are printed and answers name it.
    name: str
    type: str
    #: span, trace (needs the whole trace), event, link or scope.
    level: str = "span"
    #: Whether an answer shows it among the attributes of a span.
    shown: bool = True


_ALL = (
    IntrinsicInfo("name", ast.STRING, shown=False),
    IntrinsicInfo("status", ast.STATUS),
    IntrinsicInfo("statusMessage", ast.STRING),
    IntrinsicInfo("kind", ast.KIND),
    IntrinsicInfo("duration", ast.DURATION, shown=False),
    IntrinsicInfo("span:id", ast.STRING, shown=False),
    IntrinsicInfo("span:parentID", ast.STRING),
    IntrinsicInfo("span:childCount", ast.INT, "trace"),
    IntrinsicInfo("traceDuration", ast.DURATION, "trace", shown=False),
    IntrinsicInfo("rootName", ast.STRING, "trace", shown=False),
    IntrinsicInfo("rootServiceName", ast.STRING, "trace", shown=False),
    IntrinsicInfo("trace:id", ast.STRING, shown=False),
    IntrinsicInfo("nestedSetLeft", ast.INT, "trace"),
    IntrinsicInfo("nestedSetRight", ast.INT, "trace"),
    IntrinsicInfo("nestedSetParent", ast.INT, "trace"),
    IntrinsicInfo("event:name", ast.STRING, "event"),
    IntrinsicInfo("event:timeSinceStart", ast.DURATION, "event"),
    IntrinsicInfo("link:traceID", ast.STRING, "link"),
    IntrinsicInfo("link:spanID", ast.STRING, "link"),
    IntrinsicInfo("instrumentation:name", ast.STRING),
    IntrinsicInfo("instrumentation:version", ast.STRING),
)
#: What queries cannot name but evaluation reads.
TRACE_STATE = ast.Intrinsic("traceState")
INTRINSICS = {info.name: info for info in (*_ALL, IntrinsicInfo(TRACE_STATE.name, ast.STRING, shown=False))}
#: Other spellings.
SPELLINGS = {
    "span:name": "name",
    "span:status": "status",
    "span:statusMessage": "statusMessage",
    "span:kind": "kind",
    "span:duration": "duration",
    "trace:duration": "traceDuration",
    "trace:rootName": "rootName",
    "trace:rootService": "rootServiceName",
    **{info.name: info.name for info in _ALL},
}
SERVICE_NAME = ast.Attribute("resource", "service.name")


def type_of(field: ast.Field) -> str | None:
    """None for attributes, whose values have types of their own."""
    return INTRINSICS[field.name].type if isinstance(field, ast.Intrinsic) else None


def level_of(field: ast.Field) -> str:
    if isinstance(field, ast.Intrinsic):
        return INTRINSICS[field.name].level
    if field.parent:
        return "trace"
    return field.scope if field.scope in ("event", "link") else "span"
