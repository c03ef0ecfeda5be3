"""Metrics of the ruler."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

RULER_METRICS = CollectorRegistry()

EVALUATIONS = Counter(
    "lakerunner_ruler_evaluations",
    "Evaluations of groups: stored, with a rule that failed, or dropped because another process was first.",
    ["outcome", "trigger"],
    registry=RULER_METRICS,
)
MISSED = Counter("lakerunner_ruler_missed", "Evaluations that were skipped.", registry=RULER_METRICS)
SECONDS = Histogram(
    "lakerunner_ruler_seconds",
    "Time of one evaluation of a group, with its commit.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=RULER_METRICS,
)
SAMPLES = Counter("lakerunner_ruler_samples", "Samples written.", registry=RULER_METRICS)
GROUPS = Gauge("lakerunner_ruler_groups", "Groups that this process evaluates.", registry=RULER_METRICS)
BEHIND = Gauge(
    "lakerunner_ruler_behind_seconds", "How far the group furthest behind lags its schedule.", registry=RULER_METRICS
)
NOTIFICATIONS = Counter(
    "lakerunner_ruler_notifications",
    "Alerts for receivers: sent, failed (they are sent again), or dropped from a full queue (likewise).",
    ["receiver", "outcome"],
    registry=RULER_METRICS,
)
