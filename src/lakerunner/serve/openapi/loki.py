"""The operations of Loki's API."""

from __future__ import annotations

from lakerunner.serve.openapi import schemas
from lakerunner.serve.openapi.operation import JSON, TEXT, Operation
from lakerunner.serve.openapi.schemas import COUNT, FLAG, NUMBER, STRING, Schema, array, constant, mapping, record

_STATUSES = (
    ("400", "The request cannot be read, or the query hit a limit or cannot be evaluated on this data."),
    ("401", "The key is missing, invalid, or lacks the permission."),
    ("404", "Not found."),
    ("429", "Too many queries of this org are waiting."),
    ("499", "The query was cancelled."),
    ("503", "A dependency is down."),
    ("504", "The query timed out."),
)
#: A custom format for selectors, whose grammar a JSON schema cannot describe.
_SELECTOR: Schema = {
    "type": "string",
    "format": "logql-selector",
    "minLength": 1,
    "examples": ['{service_name="cart"}'],
}
_TIME: Schema = {
    "description": "Nanoseconds or seconds since the epoch, or an RFC 3339 time.",
    "anyOf": [NUMBER, {"type": "string", "format": "date-time"}],
}
_PARAMETERS: dict[str, Schema] = {
    "request_id": {"type": "string", "format": "uuid"},
    "query": schemas.LOGQL,
    "selector": _SELECTOR,
    "match[]": {"type": "array", "items": _SELECTOR},
    "time": _TIME,
    "start": _TIME,
    "end": _TIME,
    "since": schemas.SPAN,
    "step": schemas.SPAN,
    "interval": schemas.SPAN,
    "new_since": schemas.SPAN,
    "timeout": schemas.SPAN,
    "limit": {"type": "integer", "minimum": 1, "maximum": 5_000},
    "field_limit": {"type": "integer", "minimum": 1, "maximum": 5_000},
    "line_limit": {"type": "integer", "minimum": 1, "maximum": 5_000},
    "direction": {"enum": ["forward", "backward"]},
    "nocache": FLAG,
    "targetLabels": {"type": "string", "pattern": r"^[a-z_]{1,20}(,[a-z_]{1,20}){0,3}$"},
    "aggregateBy": {"enum": ["series", "labels"]},
    "name": {"type": "string", "minLength": 1, "examples": ["service_name"]},
}
#: Where `query` must be a selector.
_SELECTED = {**_PARAMETERS, "query": _SELECTOR}
_PAIR: Schema = {"type": "array", "items": {"anyOf": [NUMBER, STRING]}, "minItems": 2, "maxItems": 2}
_LABELS = mapping(STRING)
_ENTRY: Schema = {"type": "array", "items": {"anyOf": [STRING, {"type": "object"}]}, "minItems": 2, "maxItems": 3}
_STATS: dict[str, Schema] = {"stats": {"type": "object"}, "encodingFlags": array(STRING)}
_STREAMS = record(
    {"resultType": constant("streams"), "result": array(record({"stream": _LABELS, "values": array(_ENTRY)}))}, _STATS
)
_VECTOR = record(
    {"resultType": constant("vector"), "result": array(record({"metric": _LABELS, "value": _PAIR}))}, _STATS
)
_MATRIX = record(
    {"resultType": constant("matrix"), "result": array(record({"metric": _LABELS, "values": array(_PAIR)}))}, _STATS
)
_SCALAR = record({"resultType": constant("scalar"), "result": _PAIR}, _STATS)
_NAMES: Schema = record({"status": constant("success")}, {"data": array(STRING), "warnings": array(STRING)})
_FIGURES = record(dict.fromkeys(("streams", "chunks", "bytes", "entries"), COUNT))
_DETECTED_LABEL = record({"label": STRING, "cardinality": COUNT})
_DETECTED_FIELD = record(
    {"label": STRING, "type": STRING, "cardinality": COUNT, "parsers": {"type": ["array", "null"]}},
    {"jsonPath": array(STRING)},
)
_PATTERN = record({"pattern": STRING, "level": STRING, "samples": array({"type": "array", "items": NUMBER})})


def _loki(
    path: str,
    methods: str,
    sentence: str,
    answer: Schema,
    parameters: str = "",
    known: dict[str, Schema] = _PARAMETERS,
) -> Operation:
    full = path if path.startswith("/") else f"/loki/api/v1/{path}"
    return Operation(
        full, methods, sentence, answer, parameters, STRING, known=known, statuses=_STATUSES, error_media=(TEXT,)
    )


def _success(data: Schema) -> Schema:
    return record({"status": constant("success"), "data": data}, {"warnings": array(STRING)})


_YAML = "application/yaml"


def _ruler(prefix: str) -> tuple[Operation, ...]:
    """Groups of rules as YAML. Storing one takes YAML too, which this document describes as a form without fields."""
    done = record({"status": constant("success")}, {"data": {}, "errorType": STRING, "error": STRING})

    def read(path: str, sentence: str) -> Operation:
        return Operation(
            prefix + path, "GET", sentence, STRING, "", STRING, _YAML, statuses=_STATUSES, error_media=(TEXT,)
        )

    def change(path: str, methods: str, sentence: str) -> Operation:
        return Operation(
            prefix + path, methods, sentence, done, "", STRING, statuses=_STATUSES, error_media=(TEXT,), status="202"
        )

    return (
        read("", "All groups in LogQL."),
        read("/{namespace}", "Groups of a namespace."),
        change("/{namespace}", "POST DELETE", "Store a group, or delete all. Needs the scope admin."),
        read("/{namespace}/{group}", "One group."),
        change("/{namespace}/{group}", "DELETE", "Delete a group. Needs the scope admin."),
    )


_TIMES = "start end since"
_QUERY = "query! limit direction timeout nocache"
_FORMATTED = Operation(
    "/loki/api/v1/format_query",
    "GET POST",
    "A query in its canonical form.",
    _success(STRING),
    "query!",
    {"anyOf": [STRING, {"type": "object"}]},
    known=_PARAMETERS,
    statuses=_STATUSES,
    error_media=(JSON, TEXT),
)
OPERATIONS = (
    _loki(
        "query",
        "GET POST",
        "The value of a metric query at one time.",
        _success({"anyOf": [_VECTOR, _MATRIX, _SCALAR]}),
        f"{_QUERY} time",
    ),
    _loki(
        "query_range",
        "GET POST",
        "Log entries of a range, or values of a metric query over it.",
        _success({"anyOf": [_STREAMS, _MATRIX, _SCALAR]}),
        f"{_QUERY} {_TIMES} step interval",
    ),
    _loki("labels", "GET POST", "Names of stream labels.", _NAMES, f"query {_TIMES}", _SELECTED),
    _loki("label", "GET POST", "Names of stream labels.", _NAMES, f"query {_TIMES}", _SELECTED),
    _loki("label/{name}/values", "GET POST", "Values of a stream label.", _NAMES, f"query {_TIMES}", _SELECTED),
    _loki("series", "GET POST", "Label sets of streams.", _success(array(_LABELS)), f"match[] {_TIMES}"),
    _loki("index/stats", "GET POST", "Streams, entries and bytes.", _FIGURES, f"query! {_TIMES}", _SELECTED),
    _loki(
        "index/volume",
        "GET POST",
        "Bytes of log lines by labels.",
        _success(_VECTOR),
        f"query! {_TIMES} limit targetLabels aggregateBy",
        _SELECTED,
    ),
    _loki(
        "index/volume_range",
        "GET POST",
        "Bytes of log lines by labels over time.",
        # Without any bytes, it is an empty vector.
        _success({"anyOf": [_MATRIX, _VECTOR]}),
        f"query! {_TIMES} step limit targetLabels aggregateBy",
        _SELECTED,
    ),
    _loki(
        "detected_labels",
        "GET POST",
        "Stream labels and how many values each has.",
        record({}, {"detectedLabels": array(_DETECTED_LABEL)}),
        f"query {_TIMES}",
        _SELECTED,
    ),
    _loki(
        "detected_fields",
        "GET POST",
        "Fields that entries have, or that parsing their lines would give.",
        # Both are missing if there are no fields, or values.
        record({}, {"fields": array(_DETECTED_FIELD), "limit": COUNT}),
        f"query! {_TIMES} limit field_limit line_limit",
        _SELECTED,
    ),
    _loki(
        "detected_field/{name}/values",
        "GET POST",
        "Values of a field.",
        record({}, {"values": array(STRING), "limit": COUNT}),
        f"query! {_TIMES} limit field_limit line_limit",
        _SELECTED,
    ),
    _loki(
        "patterns",
        "GET POST",
        "Patterns of log lines, and how often each occurs.",
        _success(array(_PATTERN)),
        f"query! {_TIMES} step new_since",
        _SELECTED,
    ),
    _loki("tail", "GET", "Refused over plain HTTP: live tails speak WebSocket.", STRING),
    _FORMATTED,
    _loki("status/buildinfo", "GET", "The Loki version whose API is implemented.", _LABELS),
    _loki("drilldown-limits", "GET", "Limits, for Grafana's Logs Drilldown.", mapping({})),
    *_ruler("/loki/api/v1/rules"),
    *_ruler("/api/prom/rules"),
    _loki(
        "/prometheus/api/v1/rules",
        "GET",
        "Rules in LogQL, their health and their alerts.",
        _success(schemas.RULES),
        "type rule_name[] rule_group[] file[] exclude_alerts group_limit group_next_token",
        schemas.PARAMETERS,
    ),
    _loki("/prometheus/api/v1/alerts", "GET", "Alerts of rules in LogQL.", _success(schemas.ALERTS)),
    _loki(
        "delete",
        "GET POST PUT DELETE",
        "Request, list and cancel deletions of log lines.",
        STRING,
        "query start end request_id",
    ),
)
