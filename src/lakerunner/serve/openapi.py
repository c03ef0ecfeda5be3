"""`/api/v1/openapi.json`: the description of every route, from one table."""

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
#: Media types of streamed answers. Their POST requests take a JSON object, not a form.
_STREAMED = (_EVENTS, _ARROW)
_FORM = "application/x-www-form-urlencoded"
_ERRORS = (
    ("400", "The request cannot be read."),
    ("401", "The key is missing, invalid, or lacks the permission."),
    ("404", "Not found."),
    ("422", "The query hit a limit, which the message names, or cannot be evaluated on this data."),
    ("429", "Too many queries of this org are waiting."),
    ("503", "The query timed out or was cancelled, or a dependency is down."),
)


@dataclass(frozen=True, slots=True)
class _Operation:
    path: str
    methods: str
    sentence: str
    answer: Schema
    #: Parameter names, separated by spaces. A required one ends in `!`.
    parameters: str = ""
    error: Schema | None = None
    media: str = _JSON
    #: Needs no key and is never refused.
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
    _prometheus(
        "query_range",
        "GET POST",
        "Values of an expression over a range.",
        schemas.MATRIX,
        f"{_QUERY} start! end! step!",
    ),
    _prometheus(
        "series",
        "GET POST",
        "Series that match the selectors.",
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
        "status/buildinfo", "GET", "The Prometheus version whose API is implemented.", schemas.mapping(schemas.STRING)
    ),
    _prometheus("status/runtimeinfo", "GET", "When this process started, and its time.", schemas.mapping({})),
    _prometheus("status/walreplay", "GET", "Zeroes: there is no write-ahead log.", schemas.mapping({})),
    _prometheus("targets/metadata", "GET", "Empty: nothing is scraped here.", {"type": "array"}),
    _prometheus("scrape_pools", "GET", "Empty: nothing is scraped here.", schemas.mapping({})),
    _prometheus("status/tsdb", "GET", "Number of series, by metric name and by label.", schemas.TSDB, "limit"),
    _prometheus("status/config", "GET", "Empty: nothing is scraped here.", schemas.mapping(schemas.STRING)),
    _prometheus("status/flags", "GET", "Empty: there are no Prometheus flags.", schemas.mapping(schemas.STRING)),
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
    _lake("queries", "GET", "Queries that are running or waiting.", schemas.ALL_RUNNING),
    _lake("queries/{query_id}", "DELETE", "Cancel a query.", schemas.RUNNING),
    _lake("limits", "GET", "The limits of the caller's org.", schemas.LIMITS),
    _Operation(PATH, "GET", "This document.", {"type": "object"}, public=True),
    _health("/-/healthy", "Whether the process is alive."),
    _health("/-/ready", "Whether the lake is reachable."),
    _health("/ready", "Whether the lake is reachable."),
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
            "description": "With a key that covers several orgs, name the org in the header X-Scope-OrgID.",
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
        answers["503"] = {"description": "Not ready.", "content": {_TEXT: {"schema": schemas.STRING}}}
    return answers


def _parameters(operation: _Operation) -> Iterator[tuple[str, bool, Schema]]:
    """Yield each parameter's name, whether it is required, and its schema."""
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
