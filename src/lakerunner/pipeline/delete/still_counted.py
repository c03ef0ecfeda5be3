"""Metrics that were derived from rows before these were deleted, as far as they go on counting them.

Rules, span metrics and the service graph are made again, hour by hour (`pipeline/backfill/remake.py`). Until then, and
where that cannot be done, the receipt names them, says why, and says how to delete their samples. Queries of rows are
never answered from such samples: rules do not cover that time (`index/derived_windows.py`).
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from psycopg.rows import DictRow

from lakerunner.index.database import Connection
from lakerunner.index.deletions import Deletion, metrics_present
from lakerunner.index.derived_windows import windows_of
from lakerunner.index.rule_catalog import live_rules
from lakerunner.model.signals import METRICS, TRACES
from lakerunner.model.time import NS_PER_S
from lakerunner.pipeline.derive.span_rules import SERVICE_GRAPH, span_metrics

_NOT_REPEATED = "rules over metrics are evaluated once, when samples come"


def still_counted(tx: Connection, deletion: Deletion) -> list[dict[str, Any]]:
    """The derived metrics that count deleted rows, why they do, and how to delete them if they are not made again."""
    windows = windows_of(tx, deletion.deletion_id)
    rules = {rule.name for rule in live_rules(tx, deletion.org_id, deletion.signal)}
    if deletion.signal == METRICS.name:
        return _named(tx, deletion, dict.fromkeys(rules, _NOT_REPEATED))
    reasons: dict[str, str] = {}
    if deletion.signal == TRACES.name:
        rules |= {measure.metric for rule in (span_metrics(), SERVICE_GRAPH) for measure in rule.measures}
    for each in windows:
        if each["state"] in ("hidden", "waiting", "due"):
            reasons |= dict.fromkeys(rules, "")
    for each in windows:
        reasons |= dict.fromkeys(rules, str(each["reason"])) if each["state"] == "kept" else each["left_out"]
    return _named(tx, deletion, reasons)


def _named(tx: Connection, deletion: Deletion, reasons: dict[str, str]) -> list[dict[str, Any]]:
    start, end = _time(deletion.start_ns // NS_PER_S), _time(-(-deletion.end_ns // NS_PER_S))
    found = []
    for name in metrics_present(tx, deletion, sorted(reasons)):
        if reasons[name]:
            note = f"it counts the deleted rows, and cannot be made again: {reasons[name]}"
            command = f"lakerunner delete --signal metrics --match '{name}' --from {start} --to {end} --org …"
            found.append({"metric": name, "note": note, "deleteWith": command})
        else:
            found.append({"metric": name, "note": "it counts the deleted rows until it is made again, by itself"})
    return found


def derived_windows(tx: Connection, deletion: Deletion) -> list[dict[str, Any]]:
    """What became of the derived metrics, by hours."""
    return [_window(row) for row in windows_of(tx, deletion.deletion_id)]


def _window(row: DictRow) -> dict[str, Any]:
    # A window is open at the left, and kept as a half-open range of nanoseconds.
    document = {
        "after": _time(row["start_ns"] // NS_PER_S),
        "until": _time((row["end_ns"] - 1) // NS_PER_S),
        "state": row["state"],
        "reason": row["reason"],
        "replacedBy": None if row["replaced_by"] is None else str(row["replaced_by"]),
        "samples": row["samples"],
        "leftOut": row["left_out"] or None,
        "endedAt": row["ended_at"],
    }
    return {name: value for name, value in document.items() if value is not None}


def _time(seconds: int) -> str:
    """
    >>> _time(1_800_000_000)
    '2027-01-15T08:00:00Z'
    """
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
