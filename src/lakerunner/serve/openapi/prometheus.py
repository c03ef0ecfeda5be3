"""The operations of Prometheus' API."""

from __future__ import annotations

from lakerunner.serve.openapi import schemas
from lakerunner.serve.openapi.operation import Operation
from lakerunner.serve.openapi.schemas import Schema


def _prometheus(path: str, methods: str, sentence: str, data: Schema, parameters: str = "") -> Operation:
    return Operation(f"/api/v1/{path}", methods, sentence, schemas.success(data), parameters, schemas.PROMETHEUS_ERROR)


_TIMES = "start end"
_QUERY = "query! timeout limit lookback_delta nocache partial max_tier approximate rewrite explain stats"
_NAMES = schemas.array(schemas.STRING)
OPERATIONS = (
    _prometheus("query", "GET POST", "The value of an expression at one time.", schemas.VALUES, f"{_QUERY} time"),
    _prometheus(
        "query_range",
        "GET POST",
        "Values of an expression over a range.",
        schemas.MATRIX,
        f"{_QUERY} start! end! step!",
    ),
    _prometheus(
        "series",
        "GET POST",
        "Series that match the selectors.",
        schemas.array(schemas.mapping(schemas.STRING)),
        f"match[]! {_TIMES} limit",
    ),
    _prometheus("labels", "GET POST", "Names of labels.", _NAMES, f"match[] {_TIMES} limit"),
    _prometheus("label/{name}/values", "GET", "Values of a label.", _NAMES, f"match[] {_TIMES} limit"),
    _prometheus(
        "metadata", "GET", "Type, help and unit of metrics.", schemas.METADATA, "metric limit limit_per_metric"
    ),
    _prometheus(
        "query_exemplars",
        "GET POST",
        "Exemplars of an expression's selectors.",
        schemas.EXEMPLARS,
        "query! start! end!",
    ),
    _prometheus("format_query", "GET POST", "An expression in its canonical form.", schemas.STRING, "query!"),
    _prometheus("parse_query", "GET POST", "An expression as a tree.", schemas.TREE, "query!"),
    _prometheus(
        "status/buildinfo", "GET", "The Prometheus version whose API is implemented.", schemas.mapping(schemas.STRING)
    ),
    _prometheus("status/runtimeinfo", "GET", "When this process started, and its time.", schemas.mapping({})),
    _prometheus("status/walreplay", "GET", "Zeroes: there is no write-ahead log.", schemas.mapping({})),
    _prometheus("targets/metadata", "GET", "Empty: nothing is scraped here.", {"type": "array"}),
    _prometheus("scrape_pools", "GET", "Empty: nothing is scraped here.", schemas.mapping({})),
    _prometheus("status/tsdb", "GET", "Number of series, by metric name and by label.", schemas.TSDB, "limit"),
    _prometheus("status/config", "GET", "Empty: nothing is scraped here.", schemas.mapping(schemas.STRING)),
    _prometheus("status/flags", "GET", "Empty: there are no Prometheus flags.", schemas.mapping(schemas.STRING)),
    _prometheus(
        "rules",
        "GET",
        "Recording and alerting rules, their health and their alerts.",
        schemas.RULES,
        "type rule_name[] rule_group[] file[] match[] exclude_alerts group_limit group_next_token",
    ),
    _prometheus("alerts", "GET", "Alerts that are pending or firing.", schemas.ALERTS),
    _prometheus("targets", "GET", "Empty: nothing is scraped here.", schemas.mapping({})),
    _prometheus(
        "alertmanagers", "GET", "Empty: receivers belong to the deployment, not to an org.", schemas.mapping({})
    ),
    _prometheus(
        "admin/tsdb/delete_series",
        "POST PUT",
        "Delete series. Needs the scope admin.",
        schemas.STRING,
        f"match[]! {_TIMES}",
    ),
    _prometheus("admin/tsdb/clean_tombstones", "POST PUT", "Nothing: there are no tombstones.", schemas.STRING),
)
