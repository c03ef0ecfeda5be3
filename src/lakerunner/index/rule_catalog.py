"""The catalog of materialization rules: versions of rules, what segments were evaluated with, coverage and its holes.

A catalog belongs to an org and a signal, and its version grows with every change. A segment of raw rows records the
version with which its rows were evaluated, so a rule has seen the segment if it was live in that version. A changed
rule is a new version with an identity of its own; the old one is retired by the same change.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, SegmentRef, days_of, segment_of_row
from lakerunner.model.errors import Missing, Unavailable
from lakerunner.model.segment import UNDATED, Segment
from lakerunner.model.signals import METRICS, SIGNALS, TRACES
from lakerunner.model.time import MAX_TIME_NS, TimeRange

_COLUMNS = (
    "rule_id, org_id, signal, name, version, group_name, definition, since_version, until_version, created_at,"
    " created_by, retired_at, retired_reason"
)
#: Holes are kept by stretches of this length, so that a rule that always fails makes few of them.
_HOLE_NS = 600 * 10**9
#: A hole of more stretches is stored as one.
_MOST_STRETCHES = 1_000
#: Why samples of rules differ from rows where some of these were deleted on request.
DELETED = "rows were deleted on request"
#: The number of the built-in span metrics among rules, for holes; and how their names begin.
SPAN_METRICS, _SPAN_METRICS_PREFIX = -1, "traces_spanmetrics_"


@dataclass(frozen=True, slots=True)
class StoredRule:
    """One version of a rule."""

    rule_id: int
    org_id: uuid.UUID
    signal: str
    name: str
    #: Counts the versions of the name, from one.
    version: int
    group_name: str
    #: What `rules/stored.py` reads.
    definition: Mapping[str, Any]
    #: The catalog versions in which it is live: from the first to before the second.
    since_version: int
    until_version: int | None
    created_at: datetime
    created_by: str
    retired_at: datetime | None = None
    retired_reason: str | None = None


@dataclass(frozen=True, slots=True)
class NewRule:
    """A rule to store; it replaces the live rule of its name."""

    signal: str
    name: str
    group_name: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hole:
    """Half-open stretch of time in which samples of a rule may differ from its rows; 0 is every rule of the signal."""

    signal: str
    rule_id: int
    start_ns: int
    end_ns: int
    reason: str


@dataclass(frozen=True, slots=True, order=True)
class Uncovered:
    """A half-open stretch of time that a rule does not cover, and why."""

    start_ns: int
    end_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class RulesUsed:
    """The catalog version with which an item was evaluated, and the rules of which it has samples."""

    signal: str
    version: int
    rule_ids: Sequence[int] = ()


def catalog_version(tx: Connection, org_id: uuid.UUID, signal: str) -> int:
    """The current version; 0 if the org never had a rule of the signal."""
    row = tx.execute(
        "SELECT version FROM rule_catalog WHERE org_id = %s AND signal = %s", [org_id, signal]
    ).fetchone()  # fmt: skip
    return 0 if row is None else int(row["version"])


def catalog_versions(tx: Connection) -> dict[tuple[uuid.UUID, str], int]:
    """The current version of every org and signal that ever had a rule."""
    rows = tx.execute("SELECT org_id, signal, version FROM rule_catalog").fetchall()
    return {(row["org_id"], row["signal"]): int(row["version"]) for row in rows}


def live_rules(tx: Connection, org_id: uuid.UUID, signal: str | None = None) -> list[StoredRule]:
    """The rules that are evaluated now, by name."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM materialization_rule WHERE org_id = %(org)s AND until_version IS NULL"  # noqa: S608
        " AND (%(signal)s::text IS NULL OR signal = %(signal)s) ORDER BY name",
        {"org": org_id, "signal": signal},
    ).fetchall()
    return [_stored(row) for row in rows]


def rules_at(tx: Connection, org_id: uuid.UUID, signal: str, version: int) -> list[StoredRule]:
    """The rules of one version of the catalog."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM materialization_rule WHERE org_id = %s AND signal = %s AND since_version <= %s"  # noqa: S608
        " AND (until_version IS NULL OR until_version > %s) ORDER BY name",
        [org_id, signal, version, version],
    ).fetchall()
    return [_stored(row) for row in rows]


def versions_of(tx: Connection, org_id: uuid.UUID, name: str) -> list[StoredRule]:
    """All versions of a rule, the latest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM materialization_rule WHERE org_id = %s AND name = %s ORDER BY version DESC",  # noqa: S608
        [org_id, name],
    ).fetchall()
    return [_stored(row) for row in rows]


def find_rule(tx: Connection, org_id: uuid.UUID, name: str) -> StoredRule:
    """The live rule of the name. One of another org does not exist."""
    found = [rule for rule in live_rules(tx, org_id) if rule.name == name]
    if not found:
        raise Missing(f"cannot find the rule {name!r}", hint="see `lakerunner rules list`")
    return found[0]


def change_rules(
    tx: Connection,
    org_id: uuid.UUID,
    put: Sequence[NewRule],
    retire: Iterable[str],
    created_by: str,
    reason: str = "deleted",
) -> list[StoredRule]:
    """Store rules and retire others, by name, in one change; return those stored.

    The live rule of a stored name is retired. The caller deletes the samples that earlier versions left.
    """
    gone = {*retire, *(rule.name for rule in put)}
    lock_catalog(tx, org_id)
    live = {rule.name: rule for rule in live_rules(tx, org_id) if rule.name in gone}
    signals = {rule.signal for rule in put} | {rule.signal for rule in live.values()}
    versions = {signal: _next_version(tx, org_id, signal) for signal in sorted(signals)}
    replaced = {rule.name for rule in put}
    for rule in live.values():
        tx.execute(
            "UPDATE materialization_rule SET until_version = %s, retired_at = now(), retired_reason = %s"
            " WHERE rule_id = %s",
            [versions[rule.signal], "replaced" if rule.name in replaced else reason, rule.rule_id],
        )
    made = []
    for new in put:
        row = tx.execute(
            "INSERT INTO materialization_rule (org_id, signal, name, version, group_name, definition, since_version,"  # noqa: S608
            " created_by) SELECT %s, %s, %s, 1 + coalesce(max(version), 0), %s, %s, %s, %s FROM materialization_rule"
            f" WHERE org_id = %s AND name = %s RETURNING {_COLUMNS}",
            [
                org_id, new.signal, new.name, new.group_name, Jsonb(dict(new.definition)), versions[new.signal],
                created_by, org_id, new.name,
            ],
        ).fetchone()  # fmt: skip
        assert row is not None
        made.append(_stored(row))
    return made


def retire_rule(tx: Connection, org_id: uuid.UUID, rule_id: int, reason: str) -> bool:
    """Retire one version, if it is live."""
    found = [rule for rule in live_rules(tx, org_id) if rule.rule_id == rule_id]
    if found:
        change_rules(tx, org_id, (), [found[0].name], "", reason)
    return bool(found)


def lock_catalog(tx: Connection, org_id: uuid.UUID) -> None:
    """One change of an org at a time."""
    tx.execute("SELECT pg_advisory_xact_lock(hashtextextended('lakerunner-rules ' || %s::text, 0))", [org_id])


def _next_version(tx: Connection, org_id: uuid.UUID, signal: str) -> int:
    row = tx.execute(
        "INSERT INTO rule_catalog (org_id, signal, version) VALUES (%s, %s, 1) ON CONFLICT (org_id, signal)"
        " DO UPDATE SET version = rule_catalog.version + 1, changed_at = now() RETURNING version",
        [org_id, signal],
    ).fetchone()
    assert row is not None
    return int(row["version"])


# -- metrics of the same name ----------------------------------------------------------------------------------------


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
    reason = "the lake may have a metric of this name there"
    record_holes(
        tx, org_id, [Hole(row["signal"], row["rule_id"], row["start_ns"], row["end_ns"], reason) for row in rows]
    )


def record_clashes(tx: Connection, org_id: uuid.UUID, segments: Sequence[Segment]) -> None:
    """Make holes where segments of metrics that were sent, or recorded, have the names of live rules, or may have."""
    rules = tx.execute(
        "SELECT rule_id, signal, name FROM materialization_rule WHERE org_id = %s AND until_version IS NULL", [org_id]
    ).fetchall()
    holes = []
    for segment in segments:
        values, bounds = segment.pruning.values.get("metric_name"), segment.pruning.bounds.get("metric_name")
        for rule in rules:
            if values is not None and rule["name"] in values:
                reason = "a metric of this name was sent or recorded"
            elif values is None and (bounds is None or bounds[0] <= rule["name"] <= bounds[1]):
                reason = "the lake may have a metric of this name there"
            else:
                continue
            time_range = segment.time_range
            holes.append(Hole(rule["signal"], rule["rule_id"], time_range.start_ns, time_range.end_ns, reason))
        clash = _clash_of_span_metrics(values, bounds)
        if clash is not None:
            time_range = segment.time_range
            holes.append(Hole(TRACES.name, SPAN_METRICS, time_range.start_ns, time_range.end_ns, clash))
    record_holes(tx, org_id, holes)


def _clash_of_span_metrics(values: Collection[str] | None, bounds: tuple[str, str] | None) -> str | None:
    """Whether somebody else sends span metrics under the names of ours, or may do so.

    >>> _clash_of_span_metrics({"up"}, None), _clash_of_span_metrics(None, ("a", "z"))
    (None, 'the lake may have a metric of this name there')
    """
    if values is not None:
        is_sent = any(name.startswith(_SPAN_METRICS_PREFIX) for name in values)
        return "a metric of this name was sent or recorded" if is_sent else None
    if bounds is not None and (bounds[1] < _SPAN_METRICS_PREFIX or bounds[0] > _SPAN_METRICS_PREFIX + "~"):
        return None
    return "the lake may have a metric of this name there"


# -- in the transaction that ends an item ----------------------------------------------------------------------------


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


# -- coverage --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CoverageRange:
    """The stretch (from, to] of which it is asked whether a rule covers it."""

    rule: StoredRule
    from_ns: int
    to_ns: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The same, half-open."""
        return max(0, self.from_ns + 1), min(self.to_ns + 1, MAX_TIME_NS)


def coverage(tx: Connection, org_id: uuid.UUID, rule: StoredRule, from_ns: int, to_ns: int) -> list[Uncovered]:
    """The stretches of (from, to] in which the rule's samples may not say what its raw rows say. Empty: it covers all.

    Stretches are ordered by time, cut to the range and may overlap.
    """
    return coverage_of(tx, org_id, [CoverageRange(rule, from_ns, to_ns)])[0]


def coverage_of(tx: Connection, org_id: uuid.UUID, asked: Sequence[CoverageRange]) -> list[list[Uncovered]]:
    """The coverage of each range. Rules of one signal and time share a statement.

    In a repeatable-read transaction it sees the same segments as the query's lookup.
    """
    found: list[list[Uncovered]] = [[] for _ in asked]
    alike: dict[tuple[str, tuple[int, int], str | None], list[int]] = {}
    for place, each in enumerate(asked):
        if each.bounds[0] < each.bounds[1]:
            # Segments that do not have the metric of a rule over metrics are none of its rows.
            key = each.rule.signal, each.bounds, each.rule.definition.get("metric")
            alike.setdefault(key, []).append(place)
    for (signal, bounds, metric), places in alike.items():
        rules = [asked[place].rule for place in places]
        rows = _uncovered(tx, org_id, signal, bounds, metric, rules)
        for place, rule in zip(places, rules, strict=True):
            own = (_reason(rule, row) for row in rows)
            found[place] = sorted(
                Uncovered(max(row["start_ns"], bounds[0]), min(row["end_ns"], bounds[1]), reason)
                for row, reason in zip(rows, own, strict=True)
                if reason
            )
    return found


def _uncovered(
    tx: Connection,
    org_id: uuid.UUID,
    signal: str,
    bounds: tuple[int, int],
    metric: str | None,
    rules: Sequence[StoredRule],
) -> list[DictRow]:
    """Segments that not all of the rules have seen, holes of any of them, and those that are retired."""
    low, high = bounds
    first, last = days_of(TimeRange(low, high))
    ends = [rule.until_version for rule in rules if rule.until_version is not None]
    return tx.execute(
        "SELECT s.start_ns, s.end_ns, s.rules_version, NULL::bigint AS rule_id, NULL::text AS reason"
        " FROM segment s WHERE s.org_id = %(org)s AND s.signal = %(signal)s AND s.tier_s = 0 AND s.state = 'live'"
        " AND (s.dateint BETWEEN %(first)s AND %(last)s OR s.dateint = %(undated)s)"
        " AND s.start_ns < %(high)s AND s.end_ns > %(low)s AND NOT (s.rules_version >= %(since)s"
        " AND (%(until)s::bigint IS NULL OR s.rules_version < %(until)s))"
        " AND (%(metric)s::text IS NULL OR NOT s.pruning->'values' ? 'metric_name'"
        " OR s.pruning->'values'->'metric_name' ? %(metric)s)"
        " UNION ALL SELECT h.start_ns, h.end_ns, NULL, h.rule_id, h.reason FROM rule_hole h WHERE h.org_id = %(org)s"
        " AND h.signal = %(signal)s AND h.rule_id = ANY(%(rules)s) AND h.start_ns < %(high)s AND h.end_ns > %(low)s"
        " UNION ALL SELECT w.start_ns, w.end_ns, NULL, 0, %(deleted)s FROM derived_window w WHERE w.org_id = %(org)s"
        " AND w.signal = %(signal)s AND w.state <> 'made' AND w.start_ns < %(high)s AND w.end_ns > %(low)s"
        " UNION ALL SELECT %(low)s, %(high)s, NULL, r.rule_id, 'the rule is retired' FROM materialization_rule r"
        " WHERE r.rule_id = ANY(%(rules)s) AND r.until_version IS NOT NULL",
        {
            "org": org_id, "signal": signal, "rules": [0, *(rule.rule_id for rule in rules)],
            "since": max(rule.since_version for rule in rules), "until": min(ends, default=None),
            "first": first, "last": last, "undated": UNDATED, "low": low, "high": high, "metric": metric,
            "deleted": DELETED,
        },
    ).fetchall()  # fmt: skip


def _reason(rule: StoredRule, row: DictRow) -> str:
    """Why the rule does not cover what a row of `_uncovered` names; empty if that is of no concern to it."""
    version = row["rules_version"]
    if version is None:
        return str(row["reason"]) if row["rule_id"] in (0, rule.rule_id) else ""
    if version < rule.since_version:
        return "rows were ingested before the rule, or without it"
    return "the rule is retired" if rule.until_version is not None and version >= rule.until_version else ""


def unevaluated(
    tx: Connection, org_id: uuid.UUID, signal: str, time_range: TimeRange, since_version: int, limit: int = 10_000
) -> list[Segment]:
    """Live raw segments of the range that were evaluated before this version, the latest first."""
    first, last = days_of(time_range)
    rows = tx.execute(
        SELECT_SEGMENTS + " WHERE s.org_id = %s AND s.signal = %s AND s.tier_s = 0 AND s.state = 'live'"
        " AND (s.dateint BETWEEN %s AND %s OR s.dateint = %s) AND s.start_ns < %s AND s.end_ns > %s"
        " AND s.rules_version < %s ORDER BY s.start_ns DESC LIMIT %s",
        [org_id, signal, first, last, UNDATED, time_range.end_ns, time_range.start_ns, since_version, limit],
    ).fetchall()
    return [segment_of_row(row) for row in rows]


def _stored(row: DictRow) -> StoredRule:
    return StoredRule(**row)
