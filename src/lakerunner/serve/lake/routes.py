"""The routes of Lakerunner's own API: streams, tails, rows, running queries, limits."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lakerunner.serve.api import Api
from lakerunner.serve.lake.deletes import delete_routes
from lakerunner.serve.lake.limits import limit_routes
from lakerunner.serve.lake.logs import log_routes
from lakerunner.serve.lake.queries import running_routes
from lakerunner.serve.lake.rows import row_routes
from lakerunner.serve.lake.rules import rule_routes
from lakerunner.serve.lake.service_map import service_map_routes
from lakerunner.serve.lake.spans import span_routes
from lakerunner.serve.lake.stream import stream_routes
from lakerunner.serve.lake.tail import tail_routes
from lakerunner.serve.lake.traces import trace_routes
from lakerunner.serve.lanes.slow import SlowLane


def lake_routes(api: Api, lane: SlowLane | None = None) -> list[BaseRoute]:
    return [
        *stream_routes(api),
        *log_routes(api),
        *span_routes(api),
        *tail_routes(api),
        *row_routes(api),
        *running_routes(api, lane),
        *limit_routes(api),
        *trace_routes(api),
        *service_map_routes(api),
        *delete_routes(api),
        *rule_routes(api),
    ]
