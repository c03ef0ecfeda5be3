"""Metrics of intake."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

#: Exported by intake alone.
INTAKE_METRICS = CollectorRegistry()

EVENTS = Counter(
    "lakerunner_intake_events", "Objects named by events or listings.", ["source", "outcome"], registry=INTAKE_METRICS
)
BATCH_SECONDS = Histogram(
    "lakerunner_intake_batch_seconds",
    "Time from receiving a batch of events to committing it to the ledger.",
    ["source"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    registry=INTAKE_METRICS,
)
ACKNOWLEDGED = Counter(
    "lakerunner_intake_acknowledged", "Events acknowledged to their source.", ["source"], registry=INTAKE_METRICS
)
RETURNED = Counter(
    "lakerunner_intake_returned", "Events returned to their source for redelivery.", ["source"], registry=INTAKE_METRICS
)
SOURCE_UP = Gauge(
    "lakerunner_intake_source_up", "1 while a source of events answers.", ["source"], registry=INTAKE_METRICS
)
RECONCILED_TIMESTAMP = Gauge(
    "lakerunner_intake_reconciled_timestamp_seconds",
    "When all buckets were last listed for lost events.",
    registry=INTAKE_METRICS,
)
RECONCILE_FAILURES = Counter(
    "lakerunner_intake_reconcile_failures",
    "Listings for lost events that failed, by bucket.",
    ["bucket"],
    registry=INTAKE_METRICS,
)
