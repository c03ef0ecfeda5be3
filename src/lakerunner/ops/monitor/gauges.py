"""The gauges of the whole deployment. Only the monitor exports them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from lakerunner.index.objectives import FRESHNESS, QUERY_LATENCY
from lakerunner.index.status import IndexStatus
from lakerunner.runtime.settings import MonitorSettings
from lakerunner.serve.admin.observation import Observation

MONITOR_METRICS = CollectorRegistry()


def _gauge(name: str, sentence: str, *labels: str) -> Gauge:
    return Gauge(f"lakerunner_{name}", sentence, labels, registry=MONITOR_METRICS)


STATUS_DEGRADED = _gauge("status_degraded", "Parts of the status that the index did not return in time.")
OUTBOX_PENDING = _gauge("outbox_pending", "Messages waiting to be published.")
OUTBOX_OLDEST_SECONDS = _gauge("outbox_oldest_seconds", "Age of the oldest message waiting to be published.")
OBJECTS = _gauge("raw_objects", "Raw objects in the ledger.", "state")
ITEMS = _gauge("work_items", "Work items in the index.", "state")
STAGE_OPEN = _gauge("stage_open_items", "Open work items; counted no further than 10,000.", "stage")
STAGE_OLDEST = _gauge("stage_oldest_item_seconds", "Age of the oldest open work item.", "stage")
BUS_LAG = _gauge("bus_lag", "Messages that a group of consumers has not finished.", "group", "topic")
DEAD_LETTERS = _gauge("dead_letters", "Messages that were given up and not sent back.")
FRESHNESS_SECONDS = _gauge(
    "freshness_seconds", "From noticed to visible, raw objects of 5 minutes.", "signal", "quantile"
)
OLDEST_WAITING = _gauge("oldest_waiting_object_seconds", "Age of the oldest raw object that waits.", "signal")
SEGMENTS = _gauge("segments", "Live segments.", "signal", "level", "tier_s")
SEGMENT_ROWS = _gauge("segment_rows", "Rows of live segments.", "signal", "level", "tier_s")
SEGMENT_BYTES = _gauge("segment_bytes", "Bytes of live segments.", "signal", "level", "tier_s")
TIER_LAG = _gauge("tier_lag_seconds", "How long the oldest window of a tier has been due.", "tier_s")
TIER_WINDOWS = _gauge("tier_due_windows", "Windows of a tier that are due.", "tier_s")
STORED_BYTES = _gauge("org_stored_bytes", "Bytes of segments in the bucket, of the orgs that store most.", "org")
REQUESTS = _gauge("org_requests", "Requests to buckets since the beginning, of those orgs.", "org", "operation")
REQUEST_BYTES = _gauge("org_request_bytes", "Bytes that those requests moved.", "org", "operation")
BUCKET_UP = _gauge("bucket_up", "1 while the bucket answers the monitor.")
BUCKET_SECONDS = _gauge("bucket_probe_seconds", "Time of a small request to the bucket.")
LEADER = _gauge("leader", "1 while a process leads the singleton role.", "role")
BURN_RATE = _gauge(
    "objective_burn_rate", "How fast the error budget is used; 1 lasts its period.", "objective", "window_s"
)
CANARY_WAITING = _gauge("canary_waiting_seconds", "Age of the oldest known rows that cannot be queried yet.", "signal")
CANARY_DELAY = _gauge("canary_delay_seconds", "From written to visible, known rows of an hour.", "signal", "quantile")
CANARY_LOST = _gauge("canary_lost_rows", "Known rows that were visible and are gone.", "signal")
CANARY_DOUBLED = _gauge("canary_doubled_rows", "Known rows that are there more than once.", "signal")
ALERTS_FIRING = _gauge("alerts_firing", "Alerts that are firing.", "alertname")
ALERTS_SENT = Counter(
    "lakerunner_alerts_sent", "Notifications by kind of receiver.", ["receiver", "outcome"], registry=MONITOR_METRICS
)
_KNOWN_ROLES = ("relay", "sweeper")


def export(seen: Observation, settings: MonitorSettings) -> None:
    """Set the gauges from what could be read. The others keep their last values."""
    STATUS_DEGRADED.set(len(seen.index.degraded))
    _export_work(seen.index)
    _export_lake(seen.index)
    _export_objectives(seen.index, settings)
    if seen.lags is not None:
        for lag in seen.lags:
            BUS_LAG.labels(lag.group, lag.topic).set(lag.lag)
    if seen.dead_letters is not None:
        DEAD_LETTERS.set(seen.dead_letters)
    if seen.bucket is not None:
        BUCKET_UP.set(not seen.bucket.error)
        BUCKET_SECONDS.set(seen.bucket.seconds)


def _export_work(index: IndexStatus) -> None:
    if index.outbox is not None:
        OUTBOX_PENDING.set(index.outbox.count)
        OUTBOX_OLDEST_SECONDS.set(index.outbox.oldest_s)
    for gauge, counts in ((OBJECTS, index.objects), (ITEMS, index.items)):
        for state, count in (counts or {}).items():
            gauge.labels(state).set(count)
    if index.stages is not None:
        STAGE_OPEN.clear()
        STAGE_OLDEST.clear()
        for stage in index.stages:
            STAGE_OPEN.labels(stage.stage).set(stage.open)
            STAGE_OLDEST.labels(stage.stage).set(stage.oldest_s)
    for signal in index.signals or ():
        OLDEST_WAITING.labels(signal.signal).set(signal.oldest_waiting_s)
        for quantile, value in (("0.5", signal.p50_s), ("0.99", signal.p99_s)):
            if value is not None:
                FRESHNESS_SECONDS.labels(signal.signal, quantile).set(value)
    if index.leaders is not None:
        for role in {*_KNOWN_ROLES, *index.leaders}:
            LEADER.labels(role).set(role in index.leaders)


def _export_lake(index: IndexStatus) -> None:
    if index.levels is not None:
        for gauge in (SEGMENTS, SEGMENT_ROWS, SEGMENT_BYTES):
            gauge.clear()
        for level in index.levels:
            labels = (level.signal, str(level.level), str(level.tier_s))
            SEGMENTS.labels(*labels).set(level.segments)
            SEGMENT_ROWS.labels(*labels).set(level.rows)
            SEGMENT_BYTES.labels(*labels).set(level.bytes)
    if index.tiers is not None:
        TIER_LAG.clear()
        TIER_WINDOWS.clear()
        for tier in index.tiers:
            TIER_LAG.labels(str(tier.tier_s)).set(tier.lag_s)
            TIER_WINDOWS.labels(str(tier.tier_s)).set(tier.windows)
    if index.costs is not None:
        # Cleared, so that orgs that are no longer among the largest do not stay forever.
        STORED_BYTES.clear()
        REQUESTS.clear()
        REQUEST_BYTES.clear()
        for cost in index.costs:
            STORED_BYTES.labels(str(cost.org_id)).set(cost.bytes)
            for operation, requests in cost.requests.items():
                REQUESTS.labels(str(cost.org_id), operation).set(requests)
                REQUEST_BYTES.labels(str(cost.org_id), operation).set(cost.request_bytes[operation])


def _export_objectives(index: IndexStatus, settings: MonitorSettings) -> None:
    shares = {FRESHNESS: settings.freshness_share, QUERY_LATENCY: settings.query_share}
    if index.burns is not None:
        BURN_RATE.clear()
        for burn in index.burns:
            if burn.objective in shares:
                BURN_RATE.labels(burn.objective, str(burn.window_s)).set(burn.rate(shares[burn.objective]))
    for each in index.canary or ():
        CANARY_WAITING.labels(each.signal).set(each.waiting_s)
        CANARY_LOST.labels(each.signal).set(each.lost)
        CANARY_DOUBLED.labels(each.signal).set(each.doubled)
        for quantile, value in (("0.5", each.delay_p50_s), ("0.99", each.delay_p99_s)):
            if value is not None:
                CANARY_DELAY.labels(each.signal, quantile).set(value)
