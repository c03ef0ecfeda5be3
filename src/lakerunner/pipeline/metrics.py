"""Metrics of the pipeline beyond those that every stage has."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

STAGE_LAG = Gauge(
    "lakerunner_stage_lag_seconds", "From the arrival of the oldest input to its commit, of the last item.", ["stage"]
)
ROWS_REJECTED = Counter(
    "lakerunner_rows_rejected", "Rows refused while others of their object landed.", ["signal", "reason"]
)
OBJECTS_QUARANTINED = Counter("lakerunner_objects_quarantined", "Raw objects that could not be read.", ["signal"])
ROWS_SKEWED = Counter(
    "lakerunner_rows_skewed", "Rows that landed with an event time over a year ago or a day ahead.", ["signal"]
)
