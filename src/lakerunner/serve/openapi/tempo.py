"""The operations of Tempo's API."""

from __future__ import annotations

from lakerunner.serve.openapi import schemas
from lakerunner.serve.openapi.operation import TEXT, Operation
from lakerunner.serve.openapi.schemas import NUMBER, STRING, Schema, array, mapping, record

_STATUSES = (
    ("400", "The request cannot be read, or the query cannot be evaluated on this data."),
    ("401", "The key is missing, invalid, or lacks the permission."),
    ("404", "Not found."),
    ("422", "The query hit a limit, which the message names."),
    ("429", "Too many queries of this org are waiting."),
    ("499", "The query was cancelled."),
    ("503", "A dependency is down."),
    ("504", "The query timed out."),
)
_TRACEQL: Schema = {"type": "string", "format": "traceql", "examples": ["{ status = error && duration > 1s }"]}
_TIME: Schema = {
    "description": "Seconds or nanoseconds since the epoch, or an RFC 3339 time.",
    "anyOf": [NUMBER, {"type": "string", "format": "date-time"}],
}
_PARAMETERS: dict[str, Schema] = {
    "q": _TRACEQL,
    "scope": {"enum": ["resource", "span", "event", "link", "instrumentation", "intrinsic", "none"]},
    "keep_hierarchy": schemas.FLAG,
    "match_depth": schemas.COUNT,
    "ancestor_depth": schemas.COUNT,
    "start": _TIME,
    "end": _TIME,
    "since": schemas.SPAN,
    "step": schemas.SPAN,
    "limit": {"type": "integer", "minimum": 1, "maximum": 262_144},
    "spss": {"type": "integer", "minimum": 0, "maximum": 262_144},
    "exemplars": {"type": "integer", "minimum": 0},
    "tags": {"type": "string", "examples": ['service.name="cart"']},
    "minDuration": schemas.SPAN,
    "maxDuration": schemas.SPAN,
    "most_recent": schemas.FLAG,
    "nocache": schemas.FLAG,
}
_SERIES = record(
    {"series": array({"type": "object"}), "metrics": {"type": "object"}}, {"message": STRING, "status": STRING}
)
_SEARCH = record({"traces": array({"type": "object"}), "metrics": {"type": "object"}})


def _tempo(
    path: str, methods: str, sentence: str, answer: Schema, parameters: str = "", media: str = "application/json"
) -> Operation:
    return Operation(
        path,
        methods,
        sentence,
        answer,
        parameters,
        STRING,
        media=media,
        known=_PARAMETERS,
        statuses=_STATUSES,
        error_media=(TEXT,),
    )


OPERATIONS = (
    _tempo(
        "/api/search",
        "GET",
        "Traces that match a query, newest first.",
        _SEARCH,
        "q start end since limit spss tags minDuration maxDuration most_recent",
    ),
    _tempo(
        "/api/metrics/query_range",
        "GET POST",
        "Metrics of spans at every step.",
        _SERIES,
        "q! start end since step exemplars nocache",
    ),
    _tempo("/api/metrics/query", "GET POST", "Metrics of spans over a range.", _SERIES, "q! start end since nocache"),
    _tempo("/api/echo", "GET POST PUT DELETE OPTIONS", "A sign of life.", STRING, media=TEXT),
    _tempo("/api/status/buildinfo", "GET", "The Tempo version whose API is implemented.", mapping(STRING)),
    _tempo("/status/version", "GET", "The same as text.", STRING, media=TEXT),
    _tempo("/status/services", "GET", "That this process runs.", STRING, media=TEXT),
    _tempo("/status/endpoints", "GET", "Where all paths are described.", STRING, media=TEXT),
    _tempo("/status/runtime_config", "GET", "Empty: settings do not change at run time.", STRING, media=TEXT),
    _tempo("/api/search/tags", "GET", "Names of attributes.", mapping({}), "scope q start end"),
    _tempo("/api/v2/search/tags", "GET", "Names of attributes by scope.", mapping({}), "scope q start end"),
    _tempo("/api/search/tag/{tag}/values", "GET", "Values of an attribute, as text.", mapping({}), "start end"),
    _tempo("/api/v2/search/tag/{tag}/values", "GET", "Values with their types.", mapping({}), "q start end"),
    _tempo(
        "/api/traces/{id}",
        "GET",
        "A whole trace by its id, as OTLP in JSON or protobuf; 404 if there is none.",
        mapping({}),
        "start end",
    ),
    _tempo(
        "/api/v2/traces/{id}",
        "GET",
        "The same with its completeness, or the spans of a filter. An unknown id is answered with an empty trace.",
        mapping({}),
        "start end q keep_hierarchy match_depth ancestor_depth",
    ),
)
