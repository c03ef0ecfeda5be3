"""`/loki/api/v1/detected_labels`, `/detected_fields` and `/detected_field/NAME/values`: what can be queried for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.query.logql.records import STREAM_LABELS
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import loki_route
from lakerunner.serve.loki.fields import Field, detect_fields
from lakerunner.serve.loki.lines import newest_lines
from lakerunner.serve.loki.selectors import log_query_of, selector_of
from lakerunner.serve.loki.tallies import COUNT, Tallies
from lakerunner.serve.loki.times import read_bounds, read_few_steps_ms, read_limit
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import document
from lakerunner.serve.rendering.json import json_text

_NAMES = tuple(sorted(STREAM_LABELS))
#: Lines that are looked at, and fields of the answer, if the request says nothing; and the most lines it may ask for.
_LINES, _FIELDS, _MOST_LINES = 100, 1_000, 5_000


def detected_routes(api: Api) -> list[BaseRoute]:
    async def labels(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        selector, bounds = selector_of(params.text("query")), read_bounds(params)

        def answer(query: RunningQuery) -> Response:
            values: dict[str, set[str]] = defaultdict(set)
            tallies = Tallies(api.service, query, selector)
            # A range ends before its end: one without a length has nothing. So for fields.
            for stream in tallies.of_range(COUNT, _NAMES, bounds)[0] if bounds.range_ns else ():
                for name, value in stream.labels.items():
                    values[name].add(value)
            found = [{"label": name, "cardinality": len(values[name])} for name in sorted(values)]
            return document(request, json_text({"detectedLabels": found} if found else {}))

        return await api.in_turn(request, caller, "loki_detected_labels", params.text("query"), answer)

    async def fields(request: Request) -> Response:
        def answer(found: Sequence[Field], limit: int) -> dict[str, object]:
            # As Loki has it, an answer without fields or values has nothing.
            return {"fields": [field.to_json() for field in found[:limit]], "limit": limit} if found else {}

        return await _detect(api, request, answer)

    async def values(request: Request) -> Response:
        name = request.path_params["name"]

        def answer(found: Sequence[Field], limit: int) -> dict[str, object]:
            texts: set[str] = next((field.shown for field in found if field.name == name), set())
            return {"values": sorted(texts)[:limit], "limit": limit} if texts else {}

        return await _detect(api, request, answer)

    return [
        loki_route("/loki/api/v1/detected_labels", labels),
        loki_route("/loki/api/v1/detected_fields", fields),
        loki_route("/loki/api/v1/detected_field/{name:text}/values", values),
    ]


async def _detect(api: Api, request: Request, answer: Callable[[Sequence[Field], int], dict[str, object]]) -> Response:
    params = await Params.of(request)
    caller = await api.caller(request)
    limits = api.admission.limits(caller)
    limit = read_limit(params, _FIELDS, "limit" if params.text("limit") else "field_limit")
    lines = read_limit(params, _LINES, "line_limit")
    if lines > (most := min(limits.max_entries, _MOST_LINES)):
        raise BadInput(f"cannot look at {lines:,} lines: line_limit is at most {most:,}")
    text, bounds = params.required("query"), read_bounds(params)
    read_few_steps_ms(params, bounds, limits.max_steps)
    selector = log_query_of(text)

    def run(query: RunningQuery) -> Response:
        entries = newest_lines(api, query, selector, bounds, lines) if bounds.range_ns else []
        found = detect_fields(entries, query.check)
        return document(request, json_text(answer(found, limit)))

    return await api.in_turn(request, caller, "loki_detected_fields", text, run)
