"""`/loki/api/v1/labels`, `/label/NAME/values` and `/series`: discovery of streams and their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.records import STREAM_LABELS
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.stats import QueryStats
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import loki_route, success
from lakerunner.serve.loki.selectors import selector_of
from lakerunner.serve.loki.tallies import COUNT, Tallies
from lakerunner.serve.loki.times import LABELS_SINCE_NS, Bounds, read_bounds
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import document
from lakerunner.serve.rendering.json import json_text

Labels = dict[str, str]
Find = Callable[[Iterable[LogSelector]], tuple[list[Labels], list[str]]]
_NAMES = tuple(sorted(STREAM_LABELS))


def label_routes(api: Api) -> list[BaseRoute]:
    async def labels(request: Request) -> Response:
        params = await Params.of(request)
        bounds, selector = read_bounds(params, LABELS_SINCE_NS), selector_of(params.text("query"))

        def answer(find: Find) -> Response:
            found, warnings = find([selector])
            return _names(request, {name for each in found for name in each}, warnings)

        return await _discover(api, request, "loki_labels", bounds, _NAMES, answer)

    async def values(request: Request) -> Response:
        name = request.path_params["name"]
        params = await Params.of(request)
        bounds, selector = read_bounds(params, LABELS_SINCE_NS), selector_of(params.text("query"))
        if name not in STREAM_LABELS:
            await api.caller(request)
            return _names(request, (), [])
        present = Matcher(name, MatchKind.REGEX, ".+")

        def answer(find: Find) -> Response:
            found, warnings = find([LogSelector((*selector.matchers, present))])
            return _names(request, {each[name] for each in found if name in each}, warnings)

        return await _discover(api, request, "loki_label_values", bounds, (name,), answer)

    async def series(request: Request) -> Response:
        params = await Params.of(request)
        bounds = read_bounds(params)
        texts = list(dict.fromkeys((*params.texts("match"), *params.texts("match[]"))))
        if not all(text.strip() for text in texts):
            raise BadInput("a matcher is empty", where="match[]", hint='give a selector like {service_name="cart"}')
        selectors = [selector_of(text, braces=len(texts) < 2) for text in texts or ["{}"]]

        def answer(find: Find) -> Response:
            found, warnings = find(selectors)
            distinct = {tuple(sorted(each.items())): each for each in found}
            return success(request, json_text([distinct[key] for key in sorted(distinct)]), warnings)

        return await _discover(api, request, "loki_series", bounds, _NAMES, answer)

    return [
        loki_route("/loki/api/v1/labels", labels),
        loki_route("/loki/api/v1/label", labels),
        loki_route("/loki/api/v1/label/{name:text}/values", values),
        loki_route("/loki/api/v1/series", series),
    ]


async def _discover(
    api: Api,
    request: Request,
    kind: str,
    bounds: Bounds,
    names: tuple[str, ...],
    answer: Callable[[Find], Response],
) -> Response:
    """Answer from the label sets of streams, of which only some names are read."""
    caller = await api.caller(request)

    def run(query: RunningQuery) -> Response:
        def find(selectors: Iterable[LogSelector]) -> tuple[list[Labels], list[str]]:
            found: list[Labels] = []
            warnings: list[str] = []
            # A range ends before its end: one without a length has nothing.
            for selector in selectors if bounds.range_ns else ():
                tallies, stats = Tallies(api.service, query, selector).of_range(COUNT, names, bounds)
                found += [tally.labels for tally in tallies]
                warnings += _new(warnings, stats)
            return found, warnings

        return answer(find)

    return await api.in_turn(request, caller, kind, str(request.url.query), run)


def _new(known: list[str], stats: QueryStats) -> list[str]:
    return [warning for warning in stats.warnings() if warning not in known]


def _names(request: Request, names: Iterable[str], warnings: list[str]) -> Response:
    listed = sorted(names)
    if not listed and not warnings:
        # As Loki has it, an answer without names has no data.
        return document(request, b'{"status":"success"}')
    return success(request, json_text(listed), warnings)
