"""Loki's ruler API: groups of rules as YAML by namespace, and what Grafana's alert list asks for.

Groups that come here are in LogQL unless they say otherwise, and groups in LogQL are what is shown here. Storing and
deleting needs the scope admin.
"""

from __future__ import annotations

from urllib.parse import unquote

import yaml
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lakerunner.model.errors import BadInput
from lakerunner.rules.definitions import LOGQL
from lakerunner.rules.file import read_rules
from lakerunner.rules.render import to_yaml
from lakerunner.serve.api import Api
from lakerunner.serve.loki.answers import loki_route, success
from lakerunner.serve.params import Params, body_of
from lakerunner.serve.rendering.json import json_response, json_text
from lakerunner.serve.rule_groups import RuleFilter, RuleGroups

_ACCEPTED = 202
_DONE = {"status": "success", "data": None, "errorType": "", "error": ""}
#: Loki's present and former paths.
_PREFIXES = ("/loki/api/v1/rules", "/api/prom/rules")


def rule_routes(api: Api) -> list[BaseRoute]:
    groups = RuleGroups(api)

    async def all_groups(request: Request) -> Response:
        caller = await api.caller(request)
        return _yaml(await run_in_threadpool(groups.documents, caller, None, None, LOGQL))

    async def namespace(request: Request) -> Response:
        name = unquote(request.path_params["namespace"])
        if request.method == "GET":
            caller = await api.caller(request)
            return _yaml(await run_in_threadpool(groups.documents, caller, name, None, LOGQL))
        caller = await api.administrator(request)
        if request.method == "DELETE":
            await run_in_threadpool(groups.delete, caller, name)
        else:
            text = _file_of(await body_of(request))
            await run_in_threadpool(lambda: groups.store(caller, name, read_rules(text)))
        return json_response(_DONE, _ACCEPTED)

    async def group(request: Request) -> Response:
        space, name = (unquote(request.path_params[each]) for each in ("namespace", "group"))
        if request.method == "GET":
            caller = await api.caller(request)
            found = await run_in_threadpool(groups.documents, caller, space, name, LOGQL)
            return _yaml(found[space][0])
        caller = await api.administrator(request)
        await run_in_threadpool(groups.delete, caller, space, name)
        return json_response(_DONE, _ACCEPTED)

    async def rules(request: Request) -> Response:
        params = await Params.of(request)
        caller = await api.caller(request)
        wanted = RuleFilter.of(params, language=LOGQL)
        return success(request, json_text(await run_in_threadpool(groups.rules, caller, wanted)))

    async def alerts(request: Request) -> Response:
        caller = await api.caller(request)
        return success(request, json_text(await run_in_threadpool(groups.alerts, caller, LOGQL)))

    routes: list[BaseRoute] = [
        loki_route("/prometheus/api/v1/rules", rules, ["GET"], light=True),
        loki_route("/prometheus/api/v1/alerts", alerts, ["GET"], light=True),
    ]
    for prefix in _PREFIXES:
        routes += [
            loki_route(prefix, all_groups, ["GET"], light=True),
            loki_route(f"{prefix}/{{namespace}}", namespace, ["GET", "POST", "DELETE"], light=True),
            loki_route(f"{prefix}/{{namespace}}/{{group}}", group, ["GET", "DELETE"], light=True),
        ]
    return routes


def _file_of(body: bytes) -> str:
    """A rule file with the group that the body is."""
    try:
        # Every scalar stays the text that it is written as.
        document = yaml.load(body.decode(), yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"cannot read the group: it is not YAML: {error}") from None
    if not isinstance(document, dict) or not document.get("name"):
        raise BadInput("cannot read the group: it has no name", hint="send one group, with `name` and `rules`")
    return to_yaml({"groups": [{"language": LOGQL, **document}]})


def _yaml(document: object) -> Response:
    return Response(to_yaml(document), media_type="application/yaml")
