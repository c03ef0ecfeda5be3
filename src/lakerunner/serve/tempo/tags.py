"""`/api/search/tags` and `/api/search/tag/{tag}/values`, and their second versions: what there is to search for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput, LakeError
from lakerunner.query.language import QueryOptions
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import SERVICE_NAME, SPELLINGS
from lakerunner.query.traceql.language import compiled
from lakerunner.query.traceql.tag_language import TagsPlan
from lakerunner.query.traceql.tags import Pair, TagQuery
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.params import Params
from lakerunner.serve.plain_errors import document
from lakerunner.serve.rendering.json import json_text
from lakerunner.serve.service import Question
from lakerunner.serve.tempo.answers import tempo_route
from lakerunner.serve.tempo.range import read_range

#: Scopes of attributes, in the order of answers.
_SCOPES = ("resource", "span", "event", "link", "instrumentation")
_INTRINSIC = "intrinsic"
#: The intrinsics that Tempo lists.
_INTRINSICS = (
    *("duration", "event:name", "event:timeSinceStart", "instrumentation:name", "instrumentation:version", "kind"),
    *("link:spanID", "link:traceID", "name", "rootName", "rootServiceName", "span:duration", "span:id", "span:kind"),
    *("span:name", "span:parentID", "span:status", "span:statusMessage", "status", "statusMessage", "trace:duration"),
    *("trace:id", "trace:rootName", "trace:rootService", "traceDuration"),
)
#: The scopes in which an attribute without a scope is looked for.
_UNSCOPED = ("resource", "instrumentation", "span")
#: Names of the first API that are not attributes.
_FIRST_FIELDS: dict[str, ast.Field] = {
    "name": ast.Intrinsic("name"),
    "rootName": ast.Intrinsic("rootName"),
    "root.name": ast.Intrinsic("rootName"),
    "rootServiceName": ast.Intrinsic("rootServiceName"),
    "root.service.name": ast.Intrinsic("rootServiceName"),
    "status.code": ast.Intrinsic("status"),
}

Render = Callable[[list[Pair]], object]


def tag_routes(api: Api) -> list[BaseRoute]:
    async def names(request: Request) -> Response:
        params = await Params.of(request)
        scopes = _scopes(params.text("scope"))

        def render(found: list[Pair]) -> object:
            listed = {name for _, name in found}
            # Without a scope, the first API lists attributes only.
            shown = set(_INTRINSICS) if scopes == () else set()
            return {"tagNames": sorted(listed | shown), "metrics": {}}

        return await _answer(api, request, params, TagQuery(scopes=scopes), render)

    async def names_by_scope(request: Request) -> Response:
        params = await Params.of(request)
        asked = params.text("scope")
        scopes = _scopes(asked)

        def render(found: list[Pair]) -> object:
            by_scope: dict[str, list[str]] = {}
            for scope, name in found:
                by_scope.setdefault(scope, []).append(name)
            listed = [{"name": scope, "tags": sorted(by_scope[scope])} for scope in _SCOPES if scope in by_scope]
            if asked in ("", "none", _INTRINSIC):
                listed.append({"name": _INTRINSIC, "tags": list(_INTRINSICS)})
            return {"scopes": listed, "metrics": {}}

        return await _answer(api, request, params, TagQuery(scopes, unscoped=scopes == _SCOPES), render)

    async def values(request: Request) -> Response:
        params = await Params.of(request)
        tag = _decoded(request.path_params["tag"])
        fields = _first_fields(tag)

        def render(found: list[Pair]) -> object:
            return {"tagValues": sorted({text for _, text in found}), "metrics": {}}

        return await _answer(api, request, params, TagQuery(fields=fields), render, filters=False)

    async def typed_values(request: Request) -> Response:
        params = await Params.of(request)
        fields = _second_fields(_decoded(request.path_params["tag"]))

        def render(found: list[Pair]) -> object:
            listed = [{"type": kind, "value": text} if kind else {} for kind, text in found]
            return {"tagValues": listed, "metrics": {}}

        return await _answer(api, request, params, TagQuery(fields=fields), render)

    return [
        tempo_route("/api/search/tags", names),
        tempo_route("/api/v2/search/tags", names_by_scope),
        tempo_route("/api/search/tag/{tag:text}/values", values),
        tempo_route("/api/v2/search/tag/{tag:text}/values", typed_values),
    ]


async def _answer(
    api: Api, request: Request, params: Params, tags: TagQuery, render: Render, *, filters: bool = True
) -> Response:
    caller = await api.caller(request)
    within = read_range(params)
    condition = _condition(params.text("q")) if filters else None
    asked = replace(tags, condition=condition, filtered=condition is not None)

    def run(query: RunningQuery) -> Response:
        found: set[Pair] = set()
        if asked.scopes or asked.fields:
            plan = TagsPlan(asked, within, QueryOptions())
            batches, _ = api.service.rows(plan, Question("traceql-tags", "", plan.times), query)
            for batch in batches:
                found.update(zip(batch.column("kind").to_pylist(), batch.column("text").to_pylist(), strict=True))
        return document(request, json_text(render(sorted(found))))

    return await api.in_turn(request, caller, "tempo_tags", str(request.url.query), run)


def _decoded(tag: str) -> str:
    """The tag, which clients encode twice if it has slashes."""
    return unquote(tag) if "%" in tag else tag


def _scopes(text: str) -> tuple[str, ...]:
    if text in ("", "none"):
        return _SCOPES
    if text == _INTRINSIC:
        return ()
    if text not in _SCOPES:
        raise BadInput(f"invalid scope: {text[:50]}", hint=f"there are {', '.join((*_SCOPES, _INTRINSIC))}")
    return (text,)


def _condition(text: str) -> ast.FieldExpr | None:
    """The condition of a filter `{ … }`. Tempo ignores what is anything else, and so clients send it while typing."""
    if not text.strip():
        return None
    try:
        root = compiled(text).root
    except LakeError:
        return None
    if not isinstance(root, ast.Pipeline) or len(root.stages) != 1:
        return None
    (stage,) = root.stages
    if not isinstance(stage, ast.Filter) or stage.condition is None or _has_unscoped(stage.condition):
        return None
    return stage.condition


def _has_unscoped(expr: ast.FieldExpr) -> bool:
    match expr:
        case ast.Binary():
            return _has_unscoped(expr.left) or _has_unscoped(expr.right)
        case ast.Unary():
            return _has_unscoped(expr.operand)
        case ast.Attribute():
            return not expr.scope
        case _:
            return False


def _of_attribute(name: str, scopes: Iterable[str] = _UNSCOPED) -> tuple[ast.Field, ...]:
    return tuple(ast.Attribute(scope, name) for scope in scopes)


def _first_fields(tag: str) -> tuple[ast.Field, ...]:
    known = _FIRST_FIELDS.get(tag)
    return _of_attribute(tag) if known is None else (known,)


def _second_fields(tag: str) -> tuple[ast.Field, ...]:
    if tag == "parent":
        return ()
    try:
        root = compiled(f"{{ {tag} != nil }}" if tag != "resource.service.name" else "{ }").root
    except LakeError:
        root = None
    field = _field_of(root)
    if tag == "resource.service.name":
        return (SERVICE_NAME,)
    if field is None:
        field = _intrinsic(tag)
    if isinstance(field, ast.Attribute) and (not field.scope or field.parent):
        return _of_attribute(field.name)
    return (field,)


def _field_of(root: object) -> ast.Field | None:
    if isinstance(root, ast.Pipeline) and len(root.stages) == 1 and isinstance(root.stages[0], ast.Filter):
        condition = root.stages[0].condition
        if isinstance(condition, ast.Binary) and isinstance(condition.left, ast.Attribute | ast.Intrinsic):
            return condition.left
    return None


def _intrinsic(tag: str) -> ast.Field:
    if tag not in SPELLINGS:
        raise BadInput(
            f"please provide a valid tagName: cannot read the identifier {tag[:80]!r}",
            hint="put a scope before an attribute, as in span.http.method, or a dot",
        )
    return ast.Intrinsic(SPELLINGS[tag])
