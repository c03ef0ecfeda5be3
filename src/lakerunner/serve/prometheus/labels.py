"""`/api/v1/labels`, `/api/v1/label/NAME/values` and `/api/v1/series`: discovery of labels and series."""

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
LabelRequest = tuple[Caller, list[Selector], int, int, int]


def label_routes(api: Api) -> list[BaseRoute]:
    async def labels(request: Request) -> Response:
        caller, selectors, start_ms, end_ms, limit = await read_request(api, request)

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
        caller, selectors, start_ms, end_ms, limit = await read_request(api, request)

        def answer(query: RunningQuery) -> Response:
            source = api.service.source(query)
            label_values = metadata.label_values(source, name, selectors, start_ms, end_ms)
            return _names(request, label_values, limit, source.stats.warnings())

        return await api.in_turn(request, caller, "label_values", name, answer)

    async def series(request: Request) -> Response:
        caller, selectors, start_ms, end_ms, limit = await read_request(api, request, required=True)

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


async def read_request(api: Api, request: Request, *, required: bool = False) -> LabelRequest:
    """The caller and the parameters that these endpoints share: selectors, start, end and limit."""
    params = await Params.of(request)
    caller = await api.caller(request)
    since_ms, now_ms = api.service.recent()
    end_ms = params.time_ms("end", now_ms)
    start_ms = params.time_ms("start", end_ms - (now_ms - since_ms))
    if end_ms < start_ms:
        raise BadInput('invalid parameter "end": end timestamp must not be before start time')
    selectors: list[Selector] = selectors_in(params, required=required)
    return caller, selectors, start_ms, end_ms, params.count("limit")


def limited(items: Sequence[Selected], limit: int) -> tuple[Sequence[Selected], list[str]]:
    """The first `limit` items, and a warning if some were cut. A limit of 0 means all."""
    return (items[:limit], [TRUNCATED]) if 0 < limit < len(items) else (items, [])


def _names(request: Request, names: Sequence[str], limit: int, scan_warnings: Sequence[str]) -> Response:
    shown, warnings = limited(names, limit)
    return data_response(request, list(shown), [*warnings, *scan_warnings])


def unescaped(name: str) -> str:
    """Decode a label name. Prometheus clients escape names that are not identifiers; invalid escapes stay unchanged.

    >>> unescaped("U__http_2e_method__x"), unescaped("job"), unescaped("U__bad_zz_")
    ('http.method_x', 'job', 'U__bad_zz_')
    """
    if not name.startswith(_ESCAPED):
        return name
    text = name.removeprefix(_ESCAPED)
    if "_" in _ESCAPE.sub("", text):
        return name

    def character(escape: re.Match[str]) -> str:
        return "_" if escape[1] == "_" else chr(min(int(escape[1][:-1], 16), 0x10FFFF))

    return _ESCAPE.sub(character, text)
