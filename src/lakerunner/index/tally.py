"""Counts of raw objects, work items and segments: read from running totals, never by counting rows.

Triggers (migration 7) append every change to `tally_delta`; `fold` adds these deltas to `tally`. Both are read in one
statement, so the sum is exact at any time. It costs as much as there are orgs and recent changes.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakerunner.index.database import Connection


_BOTH = "(SELECT * FROM tally WHERE {where} UNION ALL SELECT * FROM tally_delta WHERE {where})"
_LEVELS = _BOTH.format(where="subject = 'segment_level'")
#: Whose the requests are that concern no org.
_NOBODY = uuid.UUID(int=0)
_COSTS = _BOTH.format(where="subject IN ('segment', 'raw_object')")


@dataclass(frozen=True, slots=True)
class SegmentCount:
    signal: str
    state: str
    segments: int
    rows: int
    bytes: int


def count_by_state(tx: Connection, subject: str) -> dict[str, int]:
    """The number of rows of a table by state; states without rows are absent."""
    rows = tx.execute(
        f"SELECT state, sum(count)::bigint AS count FROM {_BOTH.format(where='subject = %(subject)s')} AS t"  # noqa: S608
        " GROUP BY state HAVING sum(count) <> 0",
        {"subject": subject},
    ).fetchall()
    return {row["state"]: row["count"] for row in rows}


def count_segments(tx: Connection) -> list[SegmentCount]:
    """The numbers of segments, rows and bytes by signal and state."""
    rows = tx.execute(
        "SELECT signal, state, sum(count)::bigint AS segments, sum(row_count)::bigint AS rows,"  # noqa: S608
        f" sum(size_bytes)::bigint AS bytes FROM {_BOTH.format(where='subject = %(subject)s')} AS t"
        " GROUP BY signal, state HAVING sum(count) <> 0 ORDER BY signal, state",
        {"subject": "segment"},
    ).fetchall()
    return [SegmentCount(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class LevelCount:
    """The live segments of one signal, level and tier."""

    signal: str
    level: int
    tier_s: int
    segments: int
    rows: int
    bytes: int


def count_levels(tx: Connection) -> list[LevelCount]:
    """The numbers of live segments, rows and bytes by signal, level and tier."""
    rows = tx.execute(
        "SELECT signal, split_part(state, '/', 1)::int AS level, split_part(state, '/', 2)::int AS tier_s,"  # noqa: S608
        " sum(count)::bigint AS segments, sum(row_count)::bigint AS rows, sum(size_bytes)::bigint AS bytes"
        f" FROM {_LEVELS} AS t GROUP BY signal, state"
        " HAVING sum(count) <> 0 ORDER BY signal, tier_s, level",
    ).fetchall()
    return [LevelCount(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class OrgCost:
    """What an org's data costs: the bytes of its segments in the bucket, and the requests that were made for it."""

    org_id: uuid.UUID
    segments: int
    bytes: int
    raw_objects: int
    #: Requests since the beginning, by kind (get, put, list, head, delete), and the bytes that they moved.
    requests: dict[str, int]
    request_bytes: dict[str, int]


def cost_by_org(tx: Connection, limit: int) -> list[OrgCost]:
    """The orgs that store most, largest first; and the nil org, whose requests are nobody's."""
    rows = tx.execute(
        "SELECT org_id, segments, bytes, raw_objects, coalesce(r.requests, '{}') AS requests,"  # noqa: S608
        " coalesce(r.moved, '{}') AS request_bytes FROM (SELECT org_id,"
        " coalesce(sum(count) FILTER (WHERE subject = 'segment'), 0)::bigint AS segments,"
        " coalesce(sum(size_bytes) FILTER (WHERE subject = 'segment'), 0)::bigint AS bytes,"
        " coalesce(sum(count) FILTER (WHERE subject = 'raw_object' AND state = 'done'), 0)::bigint AS raw_objects"
        f" FROM {_COSTS} AS t GROUP BY org_id UNION ALL SELECT %s::uuid, 0, 0, 0) AS orgs LEFT JOIN LATERAL"
        " (SELECT jsonb_object_agg(operation, requests) AS requests, jsonb_object_agg(operation, bytes) AS moved"
        " FROM org_request q WHERE q.org_id = orgs.org_id) AS r ON true ORDER BY bytes DESC, org_id LIMIT %s",
        [_NOBODY, limit],
    ).fetchall()
    return [OrgCost(**row) for row in rows]


def fold(tx: Connection, limit: int) -> int:
    """Add up to `limit` deltas to the totals and delete them; return their number. For one process at a time."""
    row = tx.execute(
        "WITH folded AS (DELETE FROM tally_delta WHERE ctid = ANY(ARRAY(SELECT ctid FROM tally_delta LIMIT %s))"
        " RETURNING *), added AS ("
        " INSERT INTO tally AS t (subject, org_id, signal, state, count, row_count, size_bytes, newest_at)"
        " SELECT subject, org_id, signal, state, sum(count), sum(row_count), sum(size_bytes), max(newest_at)"
        " FROM folded GROUP BY subject, org_id, signal, state"
        " ON CONFLICT (org_id, signal, subject, state) DO UPDATE SET count = t.count + excluded.count,"
        " row_count = t.row_count + excluded.row_count,"
        " size_bytes = t.size_bytes + excluded.size_bytes, newest_at = greatest(t.newest_at, excluded.newest_at))"
        " SELECT count(*) AS folded FROM folded",
        [limit],
    ).fetchone()
    assert row is not None
    return int(row["folded"])
