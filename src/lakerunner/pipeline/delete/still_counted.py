"""Metrics that were derived from rows before these were deleted: they go on counting them.

A derived sample is a sum over the rows of an interval. What deleted rows contributed cannot be taken out of it, and the
rows that are left do not say which of them it counted. So derived metrics stay as they are, the receipt names them, and
whoever wants them to forget deletes them too. Queries of rows are never answered from such samples: rules have a hole
at that time (`index/rule_catalog.py`).
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from lakerunner.index.database import Connection
from lakerunner.index.deletions import Deletion, metrics_present
from lakerunner.index.rule_catalog import live_rules
from lakerunner.model.signals import METRICS, TRACES
from lakerunner.model.time import NS_PER_S
from lakerunner.pipeline.derive.span_rules import SERVICE_GRAPH, span_metrics


def still_counted(tx: Connection, deletion: Deletion) -> list[dict[str, Any]]:
    """The derived metrics with samples in the time of the deletion, and how to delete them."""
    if deletion.signal == METRICS.name:
        return []
    names = {rule.name for rule in live_rules(tx, deletion.org_id, deletion.signal)}
    if deletion.signal == TRACES.name:
        names |= {measure.metric for rule in (span_metrics(), SERVICE_GRAPH) for measure in rule.measures}
    start, end = _time(deletion.start_ns // NS_PER_S), _time(-(-deletion.end_ns // NS_PER_S))
    return [
        {
            "metric": name,
            "note": "its samples were made before the deletion, and count the deleted rows",
            "deleteWith": f"lakerunner delete --signal metrics --match '{name}' --from {start} --to {end} --org …",
        }
        for name in metrics_present(tx, deletion, sorted(names))
    ]


def _time(seconds: int) -> str:
    """
    >>> _time(1_800_000_000)
    '2027-01-15T08:00:00Z'
    """
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
