"""`/api/v1/materialization`: list, show, apply, delete and suggest rules of the caller's org. Needs the scope admin."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.index.query_log import logged_queries
from lakerunner.index.rule_catalog import StoredRule, find_rule, live_rules
from lakerunner.model.errors import BadInput
from lakerunner.pipeline.rule_changes import apply_groups, delete_rule
from lakerunner.rules.file import MAX_FILE_LENGTH, read_rules
from lakerunner.rules.suggest import MAX_QUERIES, suggest, to_file
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.params import Params
from lakerunner.serve.rendering.json import json_response

_MAX_DAYS, _MAX_SUGGESTIONS = 366, 100


def rule_routes(api: Api) -> list[BaseRoute]:
    database = api.service.lake.database

    def listed(caller: Caller) -> list[StoredRule]:
        with database.transaction() as tx:
            return live_rules(tx, caller.org_id)

    def applied(caller: Caller, body: bytes) -> dict[str, Any]:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise BadInput("cannot read the rule file: it is not UTF-8") from None
        by = f"key {caller.name}"
        return asdict(apply_groups(database, caller.org_id, read_rules(text), by, max_rules=api.max_rules))

    def one_of(caller: Caller, name: str, *, is_deleted: bool) -> StoredRule:
        if is_deleted:
            return delete_rule(database, caller.org_id, name)
        with database.transaction() as tx:
            return find_rule(tx, caller.org_id, name)

    async def all_rules(request: Request) -> Response:
        caller = await api.administrator(request)
        if request.method == "PUT":
            body = await _body(request)
            return json_response(await run_in_threadpool(applied, caller, body))
        return json_response({"rules": [shown(rule) for rule in await run_in_threadpool(listed, caller)]})

    async def one(request: Request) -> Response:
        caller = await api.administrator(request)
        name = request.path_params["name"]
        is_deleted = request.method == "DELETE"
        return json_response(shown(await run_in_threadpool(lambda: one_of(caller, name, is_deleted=is_deleted))))

    def suggested(caller: Caller, days: int, limit: int) -> dict[str, Any]:
        with database.transaction() as tx:
            queries = logged_queries(tx, caller.org_id, days, MAX_QUERIES)
            live = live_rules(tx, caller.org_id)
        made, unanswered = suggest(queries, live, limit)
        return {
            "file": to_file(made, days),
            "suggestions": [each.to_json() for each in made],
            "unanswered": [{"query": each.query.query, "reason": each.reason} for each in unanswered],
        }

    async def suggestions(request: Request) -> Response:
        caller = await api.administrator(request)
        params = await Params.of(request)
        days, limit = params.count("days", 7), params.count("limit", 10)
        if not 1 <= days <= _MAX_DAYS or not 1 <= limit <= _MAX_SUGGESTIONS:
            raise BadInput(f"cannot suggest rules: days must be 1 to {_MAX_DAYS}, limit 1 to {_MAX_SUGGESTIONS}")
        work = partial(suggested, caller, days, limit)
        text = "rules suggest"
        return json_response(await api.in_turn(request, caller, "suggest", text, lambda _: work()))

    return [
        DialectRoute("/api/v1/materialization/suggestions", suggestions, ["GET"], OWN),
        DialectRoute("/api/v1/materialization/rules", all_rules, ["GET", "PUT"], OWN, light=True),
        DialectRoute("/api/v1/materialization/rules/{name:text}", one, ["GET", "DELETE"], OWN, light=True),
    ]


async def _body(request: Request) -> bytes:
    """The file, read only as far as it may be long."""
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > MAX_FILE_LENGTH:
            raise BadInput(f"cannot read the rule file: it has more than {MAX_FILE_LENGTH:,} bytes", hint="split it")
    return bytes(found)


def shown(rule: StoredRule) -> dict[str, Any]:
    """A rule as a document."""
    return {
        "name": rule.name,
        "group": rule.group_name,
        "version": rule.version,
        "createdAt": rule.created_at,
        "createdBy": rule.created_by,
        **rule.definition,
    }
