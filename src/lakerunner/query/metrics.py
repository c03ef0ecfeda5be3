"""Prometheus metrics of the query path."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

#: Exported by the roles that scan segments.
QUERY_METRICS = CollectorRegistry()

CACHE_REQUESTS = Counter(
    "lakerunner_query_cache_requests", "Requests for segment objects to the cache.", ["outcome"], registry=QUERY_METRICS
)
CACHE_BYTES = Gauge("lakerunner_query_cache_bytes", "Bytes in the local cache.", registry=QUERY_METRICS)
SCAN_SECONDS = Histogram(
    "lakerunner_query_scan_seconds", "Time of one segment's scan.", ["kind"], buckets=_SECONDS, registry=QUERY_METRICS
)
SCAN_ROWS = Counter("lakerunner_query_scan_rows", "Rows that scans returned.", ["kind"], registry=QUERY_METRICS)
SCAN_ERRORS = Counter(
    "lakerunner_query_scan_errors", "Segments that could not be scanned.", ["code"], registry=QUERY_METRICS
)
WORKER_RETRIES = Counter(
    "lakerunner_query_worker_retries", "Segments tried again on another worker.", registry=QUERY_METRICS
)
WORKER_REQUESTS = Gauge(
    "lakerunner_query_worker_requests", "Requests that a worker is answering.", registry=QUERY_METRICS
)
WORKER_MEMORY = Gauge(
    "lakerunner_query_worker_memory_bytes", "Memory of a worker, without mapped files.", registry=QUERY_METRICS
)
WORKER_RELIEFS = Counter(
    "lakerunner_query_worker_reliefs", "Times that a worker emptied its caches to free memory.", registry=QUERY_METRICS
)
FILTERS_FETCHED = Counter(
    "lakerunner_query_filters_fetched", "Segments whose filters an API fetched to its memory.", registry=QUERY_METRICS
)
SEGMENTS_EXCLUDED = Counter(
    "lakerunner_query_segments_excluded",
    "Segments that an API asked no worker about, because filters in its memory excluded them.",
    registry=QUERY_METRICS,
)
ROWS_HELD = Counter(
    "lakerunner_query_rows_held",
    "Queries that an API asked no worker about, because it had their rows in its memory.",
    registry=QUERY_METRICS,
)
