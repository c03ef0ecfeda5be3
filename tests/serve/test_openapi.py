"""The document tells of everything that is served, and of nothing else."""

from __future__ import annotations

from starlette.routing import Route

from lakerunner.serve.app import api_routes
from lakerunner.serve.openapi.document import document
from tests.serve.served import Served


def test_every_route_is_in_it(served: Served) -> None:
    served = {
        (route.path.replace(":text", ""), method.lower())
        for route in api_routes(served.api)
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    paths = document()["paths"]
    assert isinstance(paths, dict)
    assert served == {(path, method) for path, methods in paths.items() for method in methods}


def test_it_is_served(served: Served) -> None:
    told = served.client.get("/api/v1/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    form = told["paths"]["/api/v1/query_range"]["post"]["requestBody"]["content"]["application/x-www-form-urlencoded"]
    assert form["schema"]["required"] == ["query", "start", "end", "step"]
