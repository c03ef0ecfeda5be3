"""`/api/v1/materialization/rules`: list, show, apply and delete rules of the caller's org. Needs the scope admin."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.index.rule_catalog import StoredRule, find_rule, live_rules
from lakerunner.model.errors import BadInput
from lakerunner.pipeline.rule_changes import apply_groups, delete_rule
from lakerunner.rules.file import MAX_FILE_LENGTH, read_rules
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller
from lakerunner.serve.dialect import DialectRoute
from lakerunner.serve.errors import OWN
from lakerunner.serve.rendering.json import json_response


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

    return [
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
