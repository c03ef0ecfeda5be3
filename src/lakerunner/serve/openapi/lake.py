"""The operations of Lakerunner's own API."""

from __future__ import annotations

from lakerunner.serve.openapi import schemas
from lakerunner.serve.openapi.operation import ARROW, EVENTS, Operation
from lakerunner.serve.openapi.schemas import Schema


def _lake(path: str, methods: str, sentence: str, answer: Schema, parameters: str = "") -> Operation:
    return Operation(f"/api/v1/{path}", methods, sentence, answer, parameters, schemas.LAKE_ERROR)


def _stream(
    path: str, sentence: str, parameters: str, known: dict[str, Schema], answer: Schema, media: str
) -> Operation:
    sentence += " By POST the parameters are members of a JSON object."
    return Operation(
        f"/api/v1/{path}", "GET POST", sentence, answer, parameters, schemas.LAKE_ERROR, media, known=known
    )


OPERATIONS = (
    _stream(
        "metrics/query",
        "A range query as server-sent events.",
        "q! s e step limit lookback timeout nocache partial max_tier approximate rewrite explain summary reverse "
        "fields",
        schemas.STREAM_PARAMETERS,
        schemas.EVENT,
        EVENTS,
    ),
    _stream(
        "logs/query",
        "A LogQL query as server-sent events; its entries as an Arrow IPC stream if the request accepts that.",
        "q! s e step limit timeout nocache partial rewrite explain summary reverse fields",
        schemas.LOG_PARAMETERS,
        schemas.EVENT,
        EVENTS,
    ),
    _stream(
        "spans/query",
        "A TraceQL search as server-sent events, one per trace, newest first.",
        "q! s e limit timeout partial summary",
        schemas.SPAN_PARAMETERS,
        schemas.EVENT,
        EVENTS,
    ),
    _stream(
        "logs/tail",
        "Log entries as they arrive, as server-sent events.",
        "q! s limit fields",
        schemas.LOG_PARAMETERS,
        schemas.EVENT,
        EVENTS,
    ),
    _stream(
        "rows/{signal}",
        "Rows of logs or traces that satisfy a filter, as an Arrow IPC stream.",
        "where s e limit oldest_first fields timeout partial explain",
        schemas.ROW_PARAMETERS,
        schemas.BYTES,
        ARROW,
    ),
    _lake("queries", "GET", "Queries that are running or waiting.", schemas.ALL_RUNNING),
    _lake("queries/{query_id}", "DELETE", "Cancel a query.", schemas.RUNNING),
    _lake("traces/{id}", "GET", "A trace, its spans in the order of a waterfall.", {"type": "object"}, "adjust"),
    _lake("traces/{id}/logs", "GET", "The log records that carry the trace's id.", {"type": "object"}),
    _lake("servicemap", "GET", "Services and the requests between them.", {"type": "object"}, "start end"),
    _lake("limits", "GET", "The limits of the caller's org.", schemas.LIMITS),
    Operation(
        "/api/v1/deletes",
        "GET POST",
        "List deletions, or request one. Needs the scope admin.",
        schemas.DELETIONS,
        "signal match start end now",
        schemas.LAKE_ERROR,
        known=schemas.DELETE_PARAMETERS,
    ),
    _lake("deletes/{deletion_id}", "GET DELETE", "A deletion with its receipt, or its cancellation.", schemas.DELETION),
    _lake(
        "materialization/rules",
        "GET PUT",
        "List materialization rules, or apply a rule file, which is the body. Needs the scope admin.",
        schemas.mapping({}),
    ),
    _lake("materialization/rules/{name}", "GET DELETE", "A rule, or its end.", schemas.mapping({})),
    _lake(
        "materialization/suggestions",
        "GET",
        "Rules that would answer queries of the query log, as a rule file and one by one. Needs the scope admin.",
        schemas.mapping({}),
        "days limit",
    ),
)
