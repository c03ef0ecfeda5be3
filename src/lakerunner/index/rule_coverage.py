"""Coverage: in which stretches of time the samples of a rule say what its raw rows say."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import DictRow

from lakerunner.index.database import Connection
from lakerunner.index.rule_catalog import StoredRule
from lakerunner.index.rule_holes import DELETED
from lakerunner.index.segments import days_of
from lakerunner.model.segment import UNDATED
from lakerunner.model.time import MAX_TIME_NS, TimeRange


@dataclass(frozen=True, slots=True, order=True)
class Uncovered:
    """A half-open stretch of time that a rule does not cover, and why."""

    start_ns: int
    end_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class CoverageRange:
    """A rule and the stretch (from, to] that it may or may not cover."""

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
