"""Inputs without an item and items without an end, at the ages at which they are announced again.

Each is overdue at N, 2N, 4N, 8N ... seconds of age. So a long backlog is not multiplied, and nobody needs to remember
what was announced when. Ages are measured by the database's own clock. Each age is a short range of an index, so the
cost depends on what is overdue, not on what waits or was ever done.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

from psycopg.rows import DictRow

from lakerunner.index.database import Connection
from lakerunner.index.segments import SEGMENT_COLUMNS, segment_of_row
from lakerunner.index.work import WorkItem
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment

T = TypeVar("T")
#: Nothing is older: a hundred years. PostgreSQL cannot make an infinite interval from a number of seconds.
_OLDEST_S = 3.2e9


class Position(NamedTuple):
    """Where a page ends: the row's time and id. The next page begins after it."""

    at: datetime
    row_id: uuid.UUID


START = Position(datetime.min.replace(tzinfo=UTC), uuid.UUID(int=0))


@dataclass(frozen=True, slots=True)
class Overdue:
    """What to look for: older than `after_s`, and not looked for in the last `since_s`; this many at a time."""

    after_s: float
    since_s: float
    page: int = 1_000

    def ages(self) -> list[tuple[float, float]]:
        """The ranges of age, from (included) and to (not included), that passed N, 2N, 4N ... in the last `since_s`.

        >>> Overdue(300, 60).ages()[:3]
        [(300, 360), (600, 660), (1200, 1260)]
        >>> Overdue(300, float("inf")).ages()
        [(300, 3200000000.0)]
        """
        ages: list[tuple[float, float]] = []
        age_s = self.after_s
        while age_s < _OLDEST_S:
            end_s = min(age_s + self.since_s, _OLDEST_S)
            if ages and ages[-1][1] >= age_s:
                ages[-1] = (ages[-1][0], end_s)
            else:
                ages.append((age_s, end_s))
            age_s *= 2
        return ages


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    found: Sequence[T]
    #: None when this is the last page.
    end: Position | None


def seen_objects(tx: Connection, overdue: Overdue, after: Position) -> Page[RawObject]:
    """Raw objects that no item has taken, oldest first."""
    return _page(
        tx,
        "org_id, collector, signal, bucket, key, version, size_bytes",
        "raw_object s WHERE state = 'seen'",
        ("seen_at", "object_id"),
        overdue,
        after,
        lambda row: RawObject(**row),
    )


def untaken_segments(
    tx: Connection, stage: str, signals: Sequence[str], overdue: Overdue, after: Position
) -> Page[Segment]:
    """Live segments that no item of the stage has taken, oldest first."""
    return _page(
        tx,
        SEGMENT_COLUMNS,
        "segment s WHERE state = 'live' AND signal = ANY(%(signals)s) AND NOT EXISTS (SELECT FROM segment_input i"
        " WHERE i.stage = %(stage)s AND i.dateint = s.dateint AND i.segment_id = s.segment_id)",
        ("created_at", "segment_id"),
        overdue,
        after,
        segment_of_row,
        {"stage": stage, "signals": list(signals)},
    )


def pending_deletions(
    tx: Connection, stage: str, signals: Sequence[str], overdue: Overdue, after: Position
) -> Page[Segment]:
    """Live segments that a running deletion concerns and no item of the stage has taken, oldest request first."""
    return _page(
        tx,
        SEGMENT_COLUMNS,
        "(SELECT g.*, l.listed_at FROM deletion_segment l JOIN deletion d USING (deletion_id)"
        " JOIN segment g USING (dateint, segment_id) WHERE l.state = 'pending' AND d.state = 'running'"
        " AND d.signal = ANY(%(signals)s) AND g.state = 'live' AND NOT EXISTS (SELECT FROM segment_input i"
        " WHERE i.stage = %(stage)s AND i.dateint = g.dateint AND i.segment_id = g.segment_id)) s WHERE true",
        ("listed_at", "segment_id"),
        overdue,
        after,
        segment_of_row,
        {"stage": stage, "signals": list(signals)},
    )


def stragglers(
    tx: Connection, stage: str, signals: Sequence[str], overdue: Overdue, after: Position
) -> Page[Segment]:  # fmt: skip
    """Live segments of fresh rows that were committed after a change of the rules, and evaluated before it."""
    return _page(
        tx,
        SEGMENT_COLUMNS,
        "(SELECT g.* FROM rule_catalog c JOIN segment g ON g.org_id = c.org_id AND g.signal = c.signal"
        " WHERE g.signal = ANY(%(signals)s) AND g.state = 'live' AND g.level = 0 AND g.tier_s = 0"
        " AND g.rules_version < c.version AND g.created_at >= c.changed_at AND NOT EXISTS (SELECT FROM segment_input i"
        " WHERE i.stage = %(stage)s AND i.dateint = g.dateint AND i.segment_id = g.segment_id)"
        # Metrics that are derived or recorded are not evaluated, and have no version.
        " AND (g.signal <> 'metrics' OR EXISTS (SELECT FROM materialization_rule r WHERE r.org_id = g.org_id"
        " AND r.signal = g.signal AND r.until_version IS NULL AND r.since_version > g.rules_version"
        " AND g.pruning->'values'->'metric_name' ? (r.definition->>'metric')))) s WHERE true",
        ("created_at", "segment_id"),
        overdue,
        after,
        segment_of_row,
        {"stage": stage, "signals": list(signals)},
    )


def open_items(tx: Connection, stage: str, overdue: Overdue, after: Position) -> Page[WorkItem]:
    """Items of the stage that nobody ended, oldest first."""
    return _page(
        tx,
        "item_id, stage, org_id, signal",
        "work_item s WHERE state = 'open' AND stage = %(stage)s",
        ("created_at", "item_id"),
        overdue,
        after,
        lambda row: WorkItem(**row),
        {"stage": stage},
    )


def _page(
    tx: Connection,
    columns: str,
    source: str,
    order: tuple[str, str],
    overdue: Overdue,
    after: Position,
    of_row: Callable[[DictRow], T],
    terms: Mapping[str, Any] | None = None,
) -> Page[T]:
    at, row_id = (f"s.{name}" for name in order)
    ages = overdue.ages()
    rows = tx.execute(
        f"SELECT found.* FROM unnest(%(from_s)s::float8[], %(to_s)s::float8[]) AS age(from_s, to_s)"  # noqa: S608
        f" CROSS JOIN LATERAL (SELECT {columns}, {at} AS page_at, {row_id} AS page_id FROM {source}"
        f" AND {at} <= now() - make_interval(secs => age.from_s) AND {at} > now() - make_interval(secs => age.to_s)"
        f" AND ({at}, {row_id}) > (%(at)s, %(row_id)s) ORDER BY {at}, {row_id} LIMIT %(page)s) AS found"
        " ORDER BY page_at, page_id LIMIT %(page)s",
        {
            **(terms or {}),
            **after._asdict(),
            "from_s": [from_s for from_s, _ in ages],
            "to_s": [to_s for _, to_s in ages],
            "page": overdue.page,
        },
    ).fetchall()
    positions = [Position(row.pop("page_at"), row.pop("page_id")) for row in rows]
    return Page([of_row(row) for row in rows], positions[-1] if len(rows) == overdue.page else None)
