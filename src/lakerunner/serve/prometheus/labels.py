"""`/api/v1/labels`, `/api/v1/label/NAME/values` and `/api/v1/series`: what there is to ask about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.query import metadata
from lakerunner.query.series.matchers import Selector
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.params import Params
from lakerunner.serve.prometheus.answers import TRUNCATED, data_response, prometheus_route, success
from lakerunner.serve.prometheus.selectors import selectors_in
from lakerunner.serve.rendering.json import labels_json

_ESCAPED = "U__"
_ESCAPE = re.compile(r"_(_|[0-9A-Fa-f]{1,6}_)")

Selected = TypeVar("Selected")
Asked = tuple[Caller, list[Selector], int, int, int]


def label_routes(api: Api) -> list[BaseRoute]:
    async def labels(request: Request) -> Response:
        caller, selectors, start_ms, end_ms, limit = await asked(api, request)

        def answer(query: RunningQuery) -> Response:
            source = api.service.source(query)
            return _names(
                request, metadata.label_names(source, selectors, start_ms, end_ms), limit, source.stats.warnings()
            )

        return await api.in_turn(request, caller, "labels", str(request.url.query), answer)

    async def values(request: Request) -> Response:
        name = unescaped(request.path_params["name"])
        if not name:
            raise BadInput('invalid parameter "name": it is empty')
        caller, selectors, start_ms, end_ms, limit = await asked(api, request)

        def answer(query: RunningQuery) -> Response:
            source = api.service.source(query)
            found = metadata.label_values(source, name, selectors, start_ms, end_ms)
            return _names(request, found, limit, source.stats.warnings())

        return await api.in_turn(request, caller, "label_values", name, answer)

    async def series(request: Request) -> Response:
        caller, selectors, start_ms, end_ms, limit = await asked(api, request, required=True)

        def answer(query: RunningQuery) -> Response:
            source = api.service.source(query)
            shown, warnings = limited(metadata.series(source, selectors, start_ms, end_ms), limit)
            warnings += source.stats.warnings()
            return success(request, b"[%s]" % b",".join(map(labels_json, shown)), warnings)

        return await api.in_turn(request, caller, "series", str(request.url.query), answer)

    return [
        prometheus_route("/api/v1/labels", labels),
        prometheus_route("/api/v1/label/{name:text}/values", values, ["GET"]),
        prometheus_route("/api/v1/series", series),
    ]


async def asked(api: Api, request: Request, *, required: bool = False) -> Asked:
    """Who asks for what: the parameters that these endpoints share."""
    params = await Params.of(request)
    caller = await api.caller(request)
    since_ms, now_ms = api.service.recent()
    end_ms = params.time_ms("end", now_ms)
    start_ms = params.time_ms("start", end_ms - (now_ms - since_ms))
    if end_ms < start_ms:
        raise BadInput('invalid parameter "end": end timestamp must not be before start time')
    selectors: list[Selector] = selectors_in(params, required=required)
    return caller, selectors, start_ms, end_ms, params.count("limit")


def limited(found: Sequence[Selected], limit: int) -> tuple[Sequence[Selected], list[str]]:
    return (found[:limit], [TRUNCATED]) if 0 < limit < len(found) else (found, [])


def _names(request: Request, names: Sequence[str], limit: int, missed: Sequence[str]) -> Response:
    shown, warnings = limited(names, limit)
    return data_response(request, list(shown), [*warnings, *missed])


def unescaped(name: str) -> str:
    """A label name that came in the escaped form which Prometheus' clients use for names that are no identifiers.

    >>> unescaped("U__http_2e_method__x"), unescaped("job"), unescaped("U__bad_zz_")
    ('http.method_x', 'job', 'U__bad_zz_')
    """
    if not name.startswith(_ESCAPED):
        return name
    text = name.removeprefix(_ESCAPED)
    if "_" in _ESCAPE.sub("", text):
        return name

    def character(found: re.Match[str]) -> str:
        return "_" if found[1] == "_" else chr(min(int(found[1][:-1], 16), 0x10FFFF))

    return _ESCAPE.sub(character, text)
