"""`/api/v1/openapi.json`: what is served, as one table."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakerunner import __version__
from lakerunner.serve.json import json_response

PATH = "/api/v1/openapi.json"


@dataclass(frozen=True, slots=True)
class _Operation:
    path: str
    methods: str
    sentence: str
    #: Names of parameters between blanks; one that must be given ends in `!`.
    parameters: str = ""
    media: str = "application/json"


_TIMES = "start end"
_QUERY = "query! timeout limit lookback_delta nocache partial explain stats"
_OPERATIONS = (
    _Operation("/api/v1/query", "GET POST", "The value of an expression at one time.", f"{_QUERY} time"),
    _Operation("/api/v1/query_range", "GET POST", "Its values over a range.", f"{_QUERY} start! end! step!"),
    _Operation("/api/v1/series", "GET POST", "Series that selectors accept.", f"match[]! {_TIMES} limit"),
    _Operation("/api/v1/labels", "GET POST", "Names of labels.", f"match[] {_TIMES} limit"),
    _Operation("/api/v1/label/{name}/values", "GET", "Values of a label.", f"match[] {_TIMES} limit"),
    _Operation("/api/v1/metadata", "GET", "Type, help and unit of metrics.", "metric limit limit_per_metric"),
    _Operation("/api/v1/query_exemplars", "GET POST", "Exemplars of an expression's selectors.", "query! start! end!"),
    _Operation("/api/v1/format_query", "GET POST", "An expression in its canonical form.", "query!"),
    _Operation("/api/v1/parse_query", "GET POST", "An expression as a tree.", "query!"),
    _Operation("/api/v1/status/buildinfo", "GET", "The version of Prometheus whose API this is."),
    _Operation("/api/v1/status/tsdb", "GET", "How many series there are, by what.", "limit"),
    _Operation("/api/v1/status/config", "GET", "Empty: nothing is scraped here."),
    _Operation("/api/v1/status/flags", "GET", "Empty: settings are our own."),
    _Operation("/api/v1/rules", "GET", "Empty: no rules are evaluated here."),
    _Operation("/api/v1/alerts", "GET", "Empty: no rules are evaluated here."),
    _Operation("/api/v1/targets", "GET", "Empty: nothing is scraped here."),
    _Operation("/api/v1/alertmanagers", "GET", "Empty: no alerts are sent from here."),
    _Operation(
        "/api/v1/metrics/query",
        "GET POST",
        "A range query as server-sent events. By POST the parameters are members of a JSON object.",
        "q! s e step limit lookback timeout nocache partial explain summary reverse fields",
        "text/event-stream",
    ),
    _Operation("/api/v1/queries", "GET", "Queries that run or wait now."),
    _Operation("/api/v1/queries/{query_id}", "DELETE", "Stop a query."),
    _Operation(PATH, "GET", "This document."),
    _Operation("/-/healthy", "GET", "Whether the process lives.", media="text/plain"),
    _Operation("/-/ready", "GET", "Whether the lake answers.", media="text/plain"),
    _Operation("/ready", "GET", "Whether the lake answers.", media="text/plain"),
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
        "info": {"title": "Lakerunner query API", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": schemes},
        "security": [{name: []} for name in schemes],
    }


def _described(operation: _Operation, method: str) -> dict[str, object]:
    in_path = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, object]] = [_parameter(name, "path", required=True) for name in in_path]
    described: dict[str, object] = {"summary": operation.sentence}
    if method == "POST":
        described["requestBody"] = _body(operation)
    else:
        parameters += [
            _parameter(name.rstrip("!"), "query", required=name.endswith("!")) for name in operation.parameters.split()
        ]
    if parameters:
        described["parameters"] = parameters
    answers: dict[str, object] = {"200": {"description": "The answer.", "content": {operation.media: {}}}}
    for status, reason in (
        ("400", "The request cannot be read."),
        ("401", "No key, or one that may not."),
        ("422", "A limit was hit, or the data allows no answer."),
        ("429", "Too many queries of the org wait."),
        ("503", "Out of time, cancelled, or a dependency is down."),
    ):
        answers[status] = {"description": reason}
    described["responses"] = answers
    return described


def _body(operation: _Operation) -> dict[str, object]:
    names = operation.parameters.split()
    media = "application/json" if operation.media == "text/event-stream" else "application/x-www-form-urlencoded"
    schema = {
        "type": "object",
        "properties": {name.rstrip("!"): {} for name in names},
        "required": [name[:-1] for name in names if name.endswith("!")],
    }
    return {"content": {media: {"schema": schema}}}


def _parameter(name: str, place: str, *, required: bool) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    if name.endswith("[]"):
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": place, "required": required, "schema": schema}


def openapi_routes() -> list[BaseRoute]:
    async def openapi(_: Request) -> Response:
        return json_response(document())

    return [Route(PATH, openapi)]
