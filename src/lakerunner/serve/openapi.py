"""`/api/v1/openapi.json`: what is served, as one table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakerunner import __version__
from lakerunner.serve import openapi_schemas as schemas
from lakerunner.serve.openapi_schemas import Schema
from lakerunner.serve.rendering.json import json_response

PATH = "/api/v1/openapi.json"
_JSON, _TEXT, _EVENTS = "application/json", "text/plain", "text/event-stream"
_ARROW = "application/vnd.apache.arrow.stream"
#: Media of answers that come in pieces. By POST, what they ask for is a JSON object.
_STREAMED = (_EVENTS, _ARROW)
_FORM = "application/x-www-form-urlencoded"
_ERRORS = (
    ("400", "The request cannot be read."),
    ("401", "No key, or one that may not."),
    ("404", "It does not exist."),
    ("422", "A limit was hit, which is named, or the data allows no answer."),
    ("429", "Too many queries of the org wait."),
    ("503", "Out of time, cancelled, or a dependency is down."),
)


@dataclass(frozen=True, slots=True)
class _Operation:
    path: str
    methods: str
    sentence: str
    answer: Schema
    #: Names of parameters between blanks; one that must be given ends in `!`.
    parameters: str = ""
    error: Schema | None = None
    media: str = _JSON
    #: For everybody, without a key, and without anything to be refused for.
    public: bool = False


def _prometheus(path: str, methods: str, sentence: str, data: Schema, parameters: str = "") -> _Operation:
    return _Operation(f"/api/v1/{path}", methods, sentence, schemas.success(data), parameters, schemas.PROMETHEUS_ERROR)


def _lake(path: str, methods: str, sentence: str, answer: Schema, parameters: str = "") -> _Operation:
    return _Operation(f"/api/v1/{path}", methods, sentence, answer, parameters, schemas.LAKE_ERROR)


def _health(path: str, sentence: str) -> _Operation:
    return _Operation(path, "GET", sentence, schemas.STRING, media=_TEXT, public=True)


_TIMES = "start end"
_QUERY = "query! timeout limit lookback_delta nocache partial explain stats"
_STREAM = "q! s e step limit lookback timeout nocache partial explain summary reverse fields"
_ROWS = "where s e limit oldest_first fields timeout partial explain"
_NAMES = schemas.array(schemas.STRING)
_OPERATIONS = (
    _prometheus("query", "GET POST", "The value of an expression at one time.", schemas.VALUES, f"{_QUERY} time"),
    _prometheus("query_range", "GET POST", "Its values over a range.", schemas.MATRIX, f"{_QUERY} start! end! step!"),
    _prometheus(
        "series",
        "GET POST",
        "Series that selectors accept.",
        schemas.array(schemas.mapping(schemas.STRING)),
        f"match[]! {_TIMES} limit",
    ),
    _prometheus("labels", "GET POST", "Names of labels.", _NAMES, f"match[] {_TIMES} limit"),
    _prometheus("label/{name}/values", "GET", "Values of a label.", _NAMES, f"match[] {_TIMES} limit"),
    _prometheus(
        "metadata", "GET", "Type, help and unit of metrics.", schemas.METADATA, "metric limit limit_per_metric"
    ),
    _prometheus(
        "query_exemplars",
        "GET POST",
        "Exemplars of an expression's selectors.",
        schemas.EXEMPLARS,
        "query! start! end!",
    ),
    _prometheus("format_query", "GET POST", "An expression in its canonical form.", schemas.STRING, "query!"),
    _prometheus("parse_query", "GET POST", "An expression as a tree.", schemas.TREE, "query!"),
    _prometheus(
        "status/buildinfo", "GET", "The version of Prometheus whose API this is.", schemas.mapping(schemas.STRING)
    ),
    _prometheus("status/tsdb", "GET", "How many series there are, by what.", schemas.TSDB, "limit"),
    _prometheus("status/config", "GET", "Empty: nothing is scraped here.", schemas.mapping(schemas.STRING)),
    _prometheus("status/flags", "GET", "Empty: settings are our own.", schemas.mapping(schemas.STRING)),
    _prometheus("rules", "GET", "Empty: no rules are evaluated here.", schemas.mapping({})),
    _prometheus("alerts", "GET", "Empty: no rules are evaluated here.", schemas.mapping({})),
    _prometheus("targets", "GET", "Empty: nothing is scraped here.", schemas.mapping({})),
    _prometheus("alertmanagers", "GET", "Empty: no alerts are sent from here.", schemas.mapping({})),
    _Operation(
        "/api/v1/metrics/query",
        "GET POST",
        "A range query as server-sent events. By POST the parameters are members of a JSON object.",
        schemas.EVENT,
        _STREAM,
        schemas.LAKE_ERROR,
        _EVENTS,
    ),
    _Operation(
        "/api/v1/rows/{signal}",
        "GET POST",
        "Rows of logs or traces that satisfy a filter, as an Arrow IPC stream. By POST the parameters are members of a "
        "JSON object.",
        schemas.BYTES,
        _ROWS,
        schemas.LAKE_ERROR,
        _ARROW,
    ),
    _lake("queries", "GET", "Queries that run or wait now.", schemas.ALL_RUNNING),
    _lake("queries/{query_id}", "DELETE", "Stop a query.", schemas.RUNNING),
    _lake("limits", "GET", "What the caller's org may ask for.", schemas.LIMITS),
    _Operation(PATH, "GET", "This document.", {"type": "object"}, public=True),
    _health("/-/healthy", "Whether the process lives."),
    _health("/-/ready", "Whether the lake answers."),
    _health("/ready", "Whether the lake answers."),
)


def document() -> dict[str, object]:
    paths: dict[str, dict[str, object]] = {}
    for operation in _OPERATIONS:
        for method in operation.methods.split():
            paths.setdefault(operation.path, {})[method.lower()] = _described(operation, method)
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "basic": {"type": "http", "scheme": "basic", "description": "The key as the password."},
        "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lakerunner query API",
            "version": __version__,
            "description": "A key that holds several orgs names the one it asks for in the header X-Scope-OrgID.",
        },
        "paths": paths,
        "components": {"securitySchemes": schemes},
        "security": [{name: []} for name in schemes],
    }


def _described(operation: _Operation, method: str) -> dict[str, object]:
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, object]] = [
        {"name": name, "in": "path", "required": True, "schema": schemas.PARAMETERS[name]} for name in in_path
    ]
    described: dict[str, object] = {"summary": operation.sentence}
    if method == "POST":
        described["requestBody"] = _body(operation)
    else:
        parameters += [
            {"name": name, "in": "query", "required": required, "schema": schema}
            for name, required, schema in _parameters(operation)
        ]
    if parameters:
        described["parameters"] = parameters
    if operation.public:
        described["security"] = []
    described["responses"] = _responses(operation)
    return described


def _responses(operation: _Operation) -> dict[str, object]:
    answers: dict[str, object] = {
        "200": {"description": "The answer.", "content": {operation.media: {"schema": operation.answer}}}
    }
    if operation.error is not None:
        for status, reason in _ERRORS:
            answers[status] = {"description": reason, "content": {_JSON: {"schema": operation.error}}}
    elif operation.media == _TEXT:
        answers["503"] = {"description": "Not now.", "content": {_TEXT: {"schema": schemas.STRING}}}
    return answers


def _parameters(operation: _Operation) -> Iterator[tuple[str, bool, Schema]]:
    """Name, whether it must be given, and how it looks."""
    known = {_EVENTS: schemas.STREAM_PARAMETERS, _ARROW: schemas.ROW_PARAMETERS}.get(
        operation.media, schemas.PARAMETERS
    )
    for word in operation.parameters.split():
        name = word.rstrip("!")
        yield name, word.endswith("!"), known[name]


def _body(operation: _Operation) -> dict[str, object]:
    media = _JSON if operation.media in _STREAMED else _FORM
    schema = {
        "type": "object",
        "properties": {name: schema for name, _, schema in _parameters(operation)},
        "required": [name for name, required, _ in _parameters(operation) if required],
        "additionalProperties": False,
    }
    return {"content": {media: {"schema": schema}}, "required": True}


def openapi_routes() -> list[BaseRoute]:
    async def openapi(_: Request) -> Response:
        return json_response(document())

    return [Route(PATH, openapi)]
