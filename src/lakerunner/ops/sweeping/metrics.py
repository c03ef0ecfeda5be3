"""Metrics of the sweeper."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

SWEPT = Counter("lakerunner_swept", "Things that the sweeper deleted or repaired.", ["what"])
SWEPT_BYTES = Counter("lakerunner_swept_bytes", "Bytes of what the sweeper deleted.", ["what"])
LOST = Gauge("lakerunner_segments_lost", "Segments whose objects are missing in the bucket. More than 0 is an alarm.")
DEAD_ROWS = Gauge("lakerunner_index_dead_rows", "Rows that vacuum has to remove, of the worst tables.", ["table"])
FREEZE_AGE = Gauge(
    "lakerunner_index_freeze_age", "Transactions since the oldest row was frozen; PostgreSQL stops near 2 billion."
)
LISTED_AT = Gauge("lakerunner_sweep_listed_timestamp_seconds", "When the bucket was last compared with the index.")
IMPLAUSIBLE = Gauge(
    "lakerunner_sweep_implausible", "1 if bucket and index differ so much that nothing was repaired. An alarm."
)
