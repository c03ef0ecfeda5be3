"""Metrics of the query API."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

API_BUCKETS_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

#: Exported by the query API alone.
API_METRICS = CollectorRegistry()

API_SECONDS = Histogram(
    "lakerunner_api_query_seconds",
    "Duration of a query, including its wait.",
    ["kind", "outcome"],
    buckets=API_BUCKETS_S,
    registry=API_METRICS,
)
API_QUERIES = Gauge("lakerunner_api_queries", "Queries that are running or waiting.", registry=API_METRICS)
API_LANES = Counter("lakerunner_api_lane", "Requests by lane.", ["lane"], registry=API_METRICS)
API_LANE_RESTARTS = Counter(
    "lakerunner_api_lane_restarts", "Restarts of the slow lane's process.", registry=API_METRICS
)
API_REWRITES = Counter(
    "lakerunner_api_rewrites",
    "Queries that rules were compared with, by outcome: rewritten, split between rules and raw rows, or refused.",
    ["language", "outcome"],
    registry=API_METRICS,
)
API_SHADOWS = Counter(
    "lakerunner_api_shadow_checks",
    "Answers of rules that were compared with raw ones: equal, different (the rules are retired), or not comparable.",
    ["outcome"],
    registry=API_METRICS,
)
API_CACHE = Counter("lakerunner_api_cache", "Answer cache lookups by outcome.", ["outcome"], registry=API_METRICS)
