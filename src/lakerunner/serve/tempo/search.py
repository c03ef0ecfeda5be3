"""`/api/search`: traces that match a TraceQL query, or the tags and durations of older clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput, Bug
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.strings import quote
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import SearchPlan
from lakerunner.query.traceql.literals import attribute_text
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.cut_traces import CutTraces
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import document
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.service import Question
from lakerunner.serve.tempo.answers import tempo_route
from lakerunner.serve.tempo.times import Bounds, parse_duration_ns, read_bounds, read_count

#: The language of Tempo's API.
TRACEQL = "traceql"
#: Traces and spans per set, if the request says nothing, and the most that it may ask for.
_LIMIT, _SPANS, _MOST = 20, 3, 262_144
_TAG = re.compile(r'\s*([^\s=]+)=("(?:[^"\\]|\\.)*"|\S*)')
_INTRINSIC_TAGS = {"name": "name", "root.name": "rootName", "root.service.name": "rootServiceName"}


@dataclass(frozen=True, slots=True)
class SearchRequest:
    text: str
    bounds: Bounds
    limit: int
    spans_per_set: int
    #: Without a query, neither span sets nor services are described.
    with_sets: bool


def search_routes(api: Api) -> list[BaseRoute]:
    async def search(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        asked = read_search(params)

        def answer(query: RunningQuery) -> Response:
            batches, source = run_search(api, asked, query)
            documents: list[bytes] = []
            cut = CutTraces(api.service.settings.trace_reach_s)
            for batch in batches:
                documents += [text.encode() for text in batch.column("document").to_pylist()]
                cut.add(batch)
            missed = [*source.stats.warnings(), *cut.warnings()]
            status = b',"status":"PARTIAL","message":%s' % json_text("; ".join(missed)) if missed else b""
            parts = b",".join(documents), metrics_json(source), status
            return document(request, b'{"traces":[%s],"metrics":%s%s}' % parts)

        return await api.in_turn(request, caller, "tempo_search", asked.text, answer)

    return [tempo_route("/api/search", search)]


def read_search(params: Params) -> SearchRequest:
    text = params.text("q")
    limit = read_count(params, "limit", _LIMIT, _MOST)
    spans = read_count(params, "spss", _SPANS, _MOST, least=0) or _MOST
    bounds = read_bounds(params)
    if bounds.end_ns <= bounds.start_ns:
        raise BadInput("start must be before end")
    if text.strip():
        return SearchRequest(text, bounds, limit, spans, with_sets=True)
    return SearchRequest(_legacy(params), bounds, limit, spans, with_sets=False)


def run_search(api: Api, asked: SearchRequest, query: RunningQuery) -> tuple[Iterator[pa.RecordBatch], LakeQuery]:
    """The traces as they are found, newest first, and the account of what is read for them."""
    times = QueryTimes.of_ns(asked.bounds.start_ns, asked.bounds.end_ns, 0)
    question = Question(TRACEQL, asked.text, times, limit=asked.limit)
    plan = api.service.compile(question, query.caller)
    if not isinstance(plan, SearchPlan):
        raise Bug(f"cannot search: the plan is a {type(plan).__name__}")
    plan.spans_per_set, plan.with_sets = asked.spans_per_set, asked.with_sets
    return api.service.rows(plan, question, query)


def metrics_json(source: LakeQuery) -> bytes:
    """What was read. Fewer completed than total jobs: segments could not be read, and traces may be missing."""
    stats = source.stats
    missed = len(stats.segments_failed)
    return json_text(
        {
            "inspectedTraces": 0,
            "inspectedSpans": str(stats.rows),
            "inspectedBytes": str(stats.read_bytes),
            "totalBlocks": stats.segments_planned,
            "completedJobs": stats.segments_planned - missed,
            "totalJobs": stats.segments_planned,
        }
    )


def _legacy(params: Params) -> str:
    """The tags and durations of older clients as a query: a trace has each of the tags in one of its spans."""
    filters = []
    tags = params.text("tags")
    at = 0
    while at < len(tags.rstrip()):
        found = _TAG.match(tags, at)
        if found is None:
            raise BadInput('invalid parameter "tags": it must be pairs', hint='write tags=service.name="cart"')
        filters.append(_tag(found[1], found[2]))
        at = found.end()
    bounds = {}
    for name, op in (("minDuration", ">="), ("maxDuration", "<=")):
        if params.text(name):
            bounds[name] = parse_duration_ns(name, params.text(name))
            filters.append(f"{{ traceDuration {op} {bounds[name]}ns }}")
    if bounds.get("maxDuration", 1 << 63) <= bounds.get("minDuration", -1):
        raise BadInput('invalid parameter "maxDuration": it must be more than minDuration')
    return " && ".join(filters) or "{ }"


def _tag(name: str, value: str) -> str:
    """The texts of the tag contain the value."""
    text = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') and len(value) > 1 else value
    field = _INTRINSIC_TAGS.get(name) or attribute_text(ast.Attribute("", name))
    return f"{{ {field} =~ {quote('.*' + _META.sub(_escaped, text) + '.*')} }}"


_META = re.compile(r"[\\.+*?()|\[\]{}^$]")


def _escaped(found: re.Match[str]) -> str:
    return "\\" + found.group()
