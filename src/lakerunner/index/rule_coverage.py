"""Coverage: in which stretches of time the samples of a rule say what its raw rows say."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import LiteralString, NamedTuple

from lakerunner.index.database import Connection
from lakerunner.index.prepared_read import BIGINT, BIGINTS, INT, TEXT, UUID, PreparedRead, Value, integer
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


class UncoveredRow(NamedTuple):
    """A stretch that some rules of a group do not cover: a segment with its version, or the reason of one rule."""

    start_ns: int
    end_ns: int
    version: int | None
    #: 0: all rules.
    rule_id: int
    reason: str


#: Segments that not all of the rules have seen, holes of any of them, and those that are retired. The columns: number
#: of the group, start, end, version, rule, reason.
_UNCOVERED: LiteralString = (
    "SELECT %s::int AS number, s.start_ns, s.end_ns, s.rules_version, -1::bigint AS rule_id, NULL::text AS reason"
    " FROM segment s WHERE s.org_id = %s AND s.signal = %s AND s.tier_s = 0 AND s.state = 'live'"
    " AND (s.dateint BETWEEN %s AND %s OR s.dateint = %s)"
    " AND s.start_ns < %s AND s.end_ns > %s AND NOT (s.rules_version >= %s"
    " AND (%s::bigint IS NULL OR s.rules_version < %s))"
    " AND (%s::text IS NULL OR NOT s.pruning->'values' ? 'metric_name' OR s.pruning->'values'->'metric_name' ? %s)"
    " UNION ALL SELECT %s, h.start_ns, h.end_ns, NULL, h.rule_id, h.reason FROM rule_hole h WHERE h.org_id = %s"
    " AND h.signal = %s AND h.rule_id = ANY(%s) AND h.start_ns < %s AND h.end_ns > %s"
    " UNION ALL SELECT %s, w.start_ns, w.end_ns, NULL, 0, %s FROM derived_window w WHERE w.org_id = %s"
    " AND w.signal = %s AND w.state <> 'made' AND w.start_ns < %s AND w.end_ns > %s"
    " UNION ALL SELECT %s, %s, %s, NULL, r.rule_id, 'the rule is retired' FROM materialization_rule r"
    " WHERE r.rule_id = ANY(%s) AND r.until_version IS NOT NULL"
)
_TYPES = (
    *(INT, UUID, TEXT, INT, INT, INT, BIGINT, BIGINT, BIGINT, BIGINT, BIGINT, TEXT, TEXT),
    *(INT, UUID, TEXT, BIGINTS, BIGINT, BIGINT),
    *(INT, TEXT, UUID, TEXT, BIGINT, BIGINT),
    *(INT, BIGINT, BIGINT, BIGINTS),
)


class CoverageQuestion:
    """The ranges whose coverage is asked for. Rules of one signal and time are a group, which is asked for at once."""

    def __init__(self, org_id: uuid.UUID, asked: Sequence[CoverageRange]) -> None:
        self._org_id, self._asked = org_id, asked
        self._groups: dict[tuple[str, tuple[int, int], str | None], list[int]] = {}
        for place, each in enumerate(asked):
            if each.bounds[0] < each.bounds[1]:
                # Segments that do not have the metric of a rule over metrics are none of its rows.
                key = each.rule.signal, each.bounds, each.rule.definition.get("metric")
                self._groups.setdefault(key, []).append(place)

    @property
    def groups(self) -> int:
        return len(self._groups)

    @staticmethod
    def statement(groups: int) -> tuple[LiteralString, tuple[int, ...]]:
        """What asks for so many groups, and the types of its parameters."""
        parts: list[LiteralString] = [_UNCOVERED] * groups
        return " UNION ALL ".join(parts), _TYPES * groups

    def values(self) -> list[object]:
        """The parameters of the statement."""
        found: list[object] = []
        for number, ((signal, (low, high), metric), places) in enumerate(self._groups.items()):
            rules = [self._asked[place].rule for place in places]
            ids = [0, *(rule.rule_id for rule in rules)]
            until = min((rule.until_version for rule in rules if rule.until_version is not None), default=None)
            first, last = days_of(TimeRange(low, high))
            since = max(rule.since_version for rule in rules)
            found += (
                number,
                self._org_id,
                signal,
                first,
                last,
                UNDATED,
                high,
                low,
                since,
                until,
                until,
                metric,
                metric,
            )
            found += (number, self._org_id, signal, ids, high, low)
            found += (number, DELETED, self._org_id, signal, high, low)
            found += (number, low, high, ids)
        return found

    def answer(self, rows: Sequence[tuple[int, UncoveredRow]]) -> list[list[Uncovered]]:
        """The coverage of each range, from the rows of the statement with the number of their group."""
        found: list[list[Uncovered]] = [[] for _ in self._asked]
        groups = list(self._groups.items())
        for number, row in rows:
            (_, (low, high), _), places = groups[number]
            for place in places:
                if reason := _reason(self._asked[place].rule, row):
                    found[place].append(Uncovered(max(row.start_ns, low), min(row.end_ns, high), reason))
        return [sorted(each) for each in found]


def read_row(start_ns: Value, end_ns: Value, version: Value, rule_id: bytes, reason: Value) -> UncoveredRow:
    """A row of the statement, as PostgreSQL sends it."""
    assert start_ns is not None and end_ns is not None
    number = None if version is None else integer(version)
    return UncoveredRow(
        integer(start_ns), integer(end_ns), number, integer(rule_id), "" if reason is None else reason.decode()
    )


def coverage_of(tx: Connection, org_id: uuid.UUID, asked: Sequence[CoverageRange]) -> list[list[Uncovered]]:
    """The coverage of each range, in one statement. Queries ask it with the lookup of their segments (`lookup.py`)."""
    question = CoverageQuestion(org_id, asked)
    rows = []
    if question.groups:
        for number, start_ns, end_ns, version, rule_id, reason in _read(question.groups).rows(tx, question.values()):
            assert number is not None and rule_id is not None
            rows.append((integer(number), read_row(start_ns, end_ns, version, rule_id, reason)))
    return question.answer(rows)


@lru_cache(maxsize=16)
def _read(groups: int) -> PreparedRead:
    return PreparedRead(*CoverageQuestion.statement(groups))


def _reason(rule: StoredRule, row: UncoveredRow) -> str:
    """Why the rule does not cover what a row names; empty if that is of no concern to it."""
    if row.version is None:
        return row.reason if row.rule_id in (0, rule.rule_id) else ""
    if row.version < rule.since_version:
        return "rows were ingested before the rule, or without it"
    return "the rule is retired" if rule.until_version is not None and row.version >= rule.until_version else ""
