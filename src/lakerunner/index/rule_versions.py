"""Which version of the rule catalog each segment was evaluated with.

A segment of raw rows records that version, so a rule has seen the segment if it was live in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, days_of, segment_of_row
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import UNDATED, Segment
from lakerunner.model.series_of_day import SeriesOfDay
from lakerunner.model.time import TimeRange


@dataclass(frozen=True, slots=True)
class RulesUsed:
    """The catalog version with which an item was evaluated, and the rules of which it has samples."""

    signal: str
    version: int
    rule_ids: Sequence[int] = ()
    #: The series of these samples, by rule and day.
    series: Sequence[SeriesOfDay] = ()


def require_not_retired(tx: Connection, org_id: uuid.UUID, used: RulesUsed) -> None:
    """Refuse samples of a rule that was retired since they were made: the item is done again with the new catalog.

    The lock makes a change wait for this transaction, so whatever it commits is there when the change looks.
    """
    row = tx.execute(
        "SELECT version FROM rule_catalog WHERE org_id = %s AND signal = %s FOR SHARE", [org_id, used.signal]
    ).fetchone()  # fmt: skip
    if not used.rule_ids or row is None or row["version"] == used.version:
        return
    retired = tx.execute(
        "SELECT name FROM materialization_rule WHERE rule_id = ANY(%s) AND until_version IS NOT NULL LIMIT 1",
        [list(used.rule_ids)],
    ).fetchone()
    if retired is not None:
        raise Unavailable(f"cannot commit samples of the rule {retired['name']}: it was changed meanwhile")


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A live segment whose rows were evaluated with the rules that a later version of its catalog has."""

    ref: SegmentRef
    from_version: int
    to_version: int


def mark_evaluated(tx: Connection, evaluated: Sequence[Evaluated]) -> int:
    """Raise the versions of live segments by compare-and-swap; return how many were as expected."""
    if not evaluated:
        return 0
    return tx.execute(
        "UPDATE segment s SET rules_version = r.after_version"
        " FROM unnest(%s::int[], %s::uuid[], %s::bigint[], %s::bigint[])"
        " AS r(dateint, segment_id, before_version, after_version) WHERE s.dateint = r.dateint"
        " AND s.segment_id = r.segment_id AND s.state = 'live' AND s.rules_version = r.before_version",
        [
            [each.ref.dateint for each in evaluated],
            [each.ref.segment_id for each in evaluated],
            [each.from_version for each in evaluated],
            [each.to_version for each in evaluated],
        ],
    ).rowcount


def differing_versions(tx: Connection, refs: Sequence[SegmentRef], read: Mapping[uuid.UUID, int]) -> int:
    """How many of these segments have another version than was read; one that is not named was read with 0."""
    if not refs:
        return 0
    rows = tx.execute(
        "SELECT s.segment_id, s.rules_version FROM segment s JOIN unnest(%s::int[], %s::uuid[])"
        " AS r(dateint, segment_id) ON s.dateint = r.dateint AND s.segment_id = r.segment_id",
        [[each.dateint for each in refs], [each.segment_id for each in refs]],
    ).fetchall()
    return sum(read.get(row["segment_id"], 0) != row["rules_version"] for row in rows)


def unevaluated(
    tx: Connection,
    org_id: uuid.UUID,
    signal: str,
    time_range: TimeRange,
    since_version: int,
    limit: int = 10_000,
    *,
    metrics: Sequence[str] | None = None,
    without: Sequence[str] = (),
) -> list[Segment]:
    """Live raw segments of the range that were evaluated before this version, the latest first.

    Of metrics, those that may hold one of `metrics` and none of `without`.
    """
    first, last = days_of(time_range)
    wanted = None if metrics is None else list(metrics)
    rows = tx.execute(
        SELECT_SEGMENTS + " WHERE s.org_id = %s AND s.signal = %s AND s.tier_s = 0 AND s.state = 'live'"
        " AND (s.dateint BETWEEN %s AND %s OR s.dateint = %s) AND s.start_ns < %s AND s.end_ns > %s"
        " AND s.rules_version < %s AND (%s::text[] IS NULL OR s.pruning->'values'->'metric_name' ?| %s::text[]"
        " OR NOT s.pruning->'values' ? 'metric_name') AND (%s OR (s.pruning->'values' ? 'metric_name'"
        " AND NOT s.pruning->'values'->'metric_name' ?| %s::text[])) ORDER BY s.start_ns DESC LIMIT %s",
        [org_id, signal, first, last, UNDATED, time_range.end_ns, time_range.start_ns, since_version,
         wanted, wanted, not without, list(without), limit],
    ).fetchall()  # fmt: skip
    return [segment_of_row(row) for row in rows]
