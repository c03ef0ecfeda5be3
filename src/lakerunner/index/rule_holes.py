"""Holes in the coverage of rules: stretches of time in which samples of a rule may differ from its rows."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.model.signals import METRICS, SIGNALS

#: Holes are kept by stretches of this length, so that a rule that always fails makes few of them.
_HOLE_NS = 600 * 10**9
#: A hole of more stretches is stored as one.
_MOST_STRETCHES = 1_000
#: Why samples of rules differ from rows where some of these were deleted on request.
DELETED = "rows were deleted on request"
#: Holes name the built-in metrics by these rule_ids.
SPAN_METRICS, SERVICE_GRAPH = -1, -2


@dataclass(frozen=True, slots=True)
class Hole:
    """Half-open stretch of time in which samples of a rule may differ from its rows; 0 is every rule of the signal."""

    signal: str
    rule_id: int
    start_ns: int
    end_ns: int
    reason: str


def record_holes(tx: Connection, org_id: uuid.UUID, holes: Sequence[Hole]) -> None:
    """Store holes, widened to multiples of `_HOLE_NS`. A hole that is there stays as it is."""
    for hole in holes:
        if len(_hole_starts(hole)) > _MOST_STRETCHES:
            record_wide_hole(tx, org_id, hole)
    cells = {
        (hole.signal, hole.rule_id, start_ns, hole.reason)
        for hole in holes
        if len(_hole_starts(hole)) <= _MOST_STRETCHES
        for start_ns in _hole_starts(hole)
    }
    if not cells:
        return
    columns = [list(column) for column in zip(*sorted(cells), strict=True)]
    tx.execute(
        "INSERT INTO rule_hole (org_id, signal, rule_id, start_ns, end_ns, reason)"
        " SELECT %s, w.signal, w.rule_id, w.start_ns, w.start_ns + %s, w.reason"
        " FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::text[]) AS w(signal, rule_id, start_ns, reason)"
        " ON CONFLICT DO NOTHING",
        [org_id, _HOLE_NS, *columns],
    )


def record_gone(tx: Connection, org_id: uuid.UUID, signal: str, start_ns: int, end_ns: int, reason: str) -> None:
    """Rows of a signal are gone: a hole for its rules. Samples of metrics may be those of any rule."""
    signals = [each.name for each in SIGNALS] if signal == METRICS.name else [signal]
    for each in signals:
        record_wide_hole(tx, org_id, Hole(each, 0, start_ns, end_ns, reason))


def record_wide_hole(tx: Connection, org_id: uuid.UUID, hole: Hole) -> None:
    """Store one hole that may be years long. One of the same start grows."""
    tx.execute(
        "INSERT INTO rule_hole (org_id, signal, rule_id, start_ns, end_ns, reason) VALUES (%s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (org_id, signal, rule_id, reason, start_ns)"
        " DO UPDATE SET end_ns = greatest(rule_hole.end_ns, excluded.end_ns)",
        [org_id, hole.signal, hole.rule_id, hole.start_ns, hole.end_ns, hole.reason],
    )


def _hole_starts(hole: Hole) -> range:
    first = hole.start_ns // _HOLE_NS * _HOLE_NS
    return range(first, hole.end_ns, _HOLE_NS)
