"""Metrics that any role may export, in the registry of the process.

What one role alone measures is in a registry of its own (`Role.registries`): all roles are forks of one process, and
a role must not export zeros for what it does not know.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

#: From a millisecond (a local folder) to a minute (a store in trouble).
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

STORE_SECONDS = Histogram(
    "lakerunner_store_operation_seconds", "Time of one request to the bucket.", ["operation"], buckets=_SECONDS
)
STORE_ERRORS = Counter("lakerunner_store_errors", "Failed requests to the bucket.", ["operation", "code"])
STORE_CIRCUIT_OPEN = Gauge("lakerunner_store_circuit_open", "1 while calls to the bucket are paused.")

BUS_PUBLISHED = Counter("lakerunner_bus_published", "Messages published.", ["topic"])
BUS_HANDLED = Counter("lakerunner_bus_handled", "Messages handled.", ["topic", "group", "outcome"])

STAGE_SECONDS = Histogram("lakerunner_stage_seconds", "Time of one work item.", ["stage"], buckets=_SECONDS)
GRAPH_HALVES = Counter(
    "lakerunner_service_graph_halves",
    "Sides of calls that waited for the other: paired later, counted as a call to an external service, or unpaired.",
    ["outcome"],
)
STAGE_ITEMS = Counter("lakerunner_stage_items", "Work items ended.", ["stage", "outcome"])
STAGE_ROWS = Counter("lakerunner_stage_rows", "Rows written.", ["stage"])
STAGE_BYTES = Counter("lakerunner_stage_bytes", "Bytes written.", ["stage"])
STAGE_LAG = Gauge(
    "lakerunner_stage_lag_seconds", "From the arrival of the oldest input to its commit, of the last item.", ["stage"]
)

OBJECTS_QUARANTINED = Counter("lakerunner_objects_quarantined", "Raw objects that could not be read.", ["signal"])

ROLE_READY = Gauge("lakerunner_role_ready", "1 while this role is ready.", ["role"])
ROLE_LEADER = Gauge("lakerunner_role_leader", "1 while this process leads its singleton role.", ["role"])
SWALLOWED = Counter(
    "lakerunner_swallowed_errors", "Errors that were ignored on purpose, by place in the code.", ["place"]
)
