"""Metrics that were sent or recorded under the name of a rule: their time becomes a hole of that rule."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from lakerunner.index.database import Connection
from lakerunner.index.rule_catalog import StoredRule
from lakerunner.index.rule_holes import SERVICE_GRAPH, SPAN_METRICS, Hole, record_holes
from lakerunner.model.segment import Segment
from lakerunner.model.signals import TRACES

#: How the names of the built-in metrics begin.
_BUILT_IN = {SPAN_METRICS: "traces_spanmetrics_", SERVICE_GRAPH: "traces_service_graph_"}
_CLASH = "a metric of this name was sent or recorded"
#: A segment with many metrics has only bounds of their names in the index.
_POSSIBLE_CLASH = "the lake may have a metric of this name there"


def segments_naming(tx: Connection, org_id: uuid.UUID, names: Sequence[str]) -> dict[str, uuid.UUID]:
    """Names that live segments of metrics are known to have, each with one of those segments."""
    rows = tx.execute(
        "SELECT w.name, (SELECT s.segment_id FROM segment s WHERE s.org_id = %s AND s.signal = 'metrics'"
        " AND s.state = 'live' AND s.pruning->'values'->'metric_name' ? w.name LIMIT 1) AS segment_id"
        " FROM unnest(%s::text[]) AS w(name)",
        [org_id, list(names)],
    ).fetchall()
    return {row["name"]: row["segment_id"] for row in rows if row["segment_id"] is not None}


def record_possible_clashes(tx: Connection, org_id: uuid.UUID, rules: Sequence[StoredRule]) -> None:
    """Make holes where segments have so many metrics that the index does not know whether they have these names."""
    rows = tx.execute(
        "SELECT DISTINCT r.rule_id, r.signal, s.start_ns, s.end_ns FROM segment s"
        " JOIN unnest(%s::bigint[], %s::text[], %s::text[]) AS r(rule_id, signal, name) ON true"
        " WHERE s.org_id = %s AND s.signal = 'metrics' AND s.state = 'live' AND s.tier_s = 0"
        " AND NOT s.pruning->'values' ? 'metric_name'"
        " AND (NOT s.pruning->'bounds' ? 'metric_name' OR r.name BETWEEN s.pruning->'bounds'->'metric_name'->>0"
        " AND s.pruning->'bounds'->'metric_name'->>1)",
        [[rule.rule_id for rule in rules], [rule.signal for rule in rules], [rule.name for rule in rules], org_id],
    ).fetchall()
    holes = [Hole(row["signal"], row["rule_id"], row["start_ns"], row["end_ns"], _POSSIBLE_CLASH) for row in rows]
    record_holes(tx, org_id, holes)


def record_clashes(tx: Connection, org_id: uuid.UUID, segments: Sequence[Segment]) -> None:
    """Make holes where segments of metrics that were sent, or recorded, have the names of live rules, or may have."""
    rules = tx.execute(
        "SELECT rule_id, signal, name FROM materialization_rule WHERE org_id = %s AND until_version IS NULL", [org_id]
    ).fetchall()
    holes = []
    for segment in segments:
        values, bounds = segment.pruning.values.get("metric_name"), segment.pruning.bounds.get("metric_name")
        time_range = segment.time_range
        for rule in rules:
            if values is not None and rule["name"] in values:
                reason = _CLASH
            elif values is None and (bounds is None or bounds[0] <= rule["name"] <= bounds[1]):
                reason = _POSSIBLE_CLASH
            else:
                continue
            holes.append(Hole(rule["signal"], rule["rule_id"], time_range.start_ns, time_range.end_ns, reason))
        for rule_id, prefix in _BUILT_IN.items():
            clash = _clash_of_built_in(prefix, values, bounds)
            if clash is not None:
                holes.append(Hole(TRACES.name, rule_id, time_range.start_ns, time_range.end_ns, clash))
    record_holes(tx, org_id, holes)


def _clash_of_built_in(prefix: str, values: Collection[str] | None, bounds: tuple[str, str] | None) -> str | None:
    """Why built-in metrics with this prefix clash with the names in a segment, or None.

    >>> _clash_of_built_in("traces_", {"up"}, None), _clash_of_built_in("traces_", None, ("a", "z"))
    (None, 'the lake may have a metric of this name there')
    """
    if values is not None:
        is_sent = any(name.startswith(prefix) for name in values)
        return _CLASH if is_sent else None
    if bounds is not None and (bounds[1] < prefix or bounds[0] > prefix + "~"):
        return None
    return _POSSIBLE_CLASH
