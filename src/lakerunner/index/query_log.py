"""The query log: which metric queries an org asks, how often, and what they cost. One row per query and day."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lakerunner.index.database import Connection
from lakerunner.model.ids import hashed_id


@dataclass(slots=True)
class LoggedQuery:
    """A query, and the sums over the times that it was asked."""

    org_id: uuid.UUID
    language: str
    query: str
    range_ms: int
    step_ms: int
    asked_by: str = ""
    asked: int = 0
    cached: int = 0
    rewritten: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    cpu_s: float = 0.0
    elapsed_s: float = 0.0

    @property
    def query_id(self) -> uuid.UUID:
        parts = (self.language, self.query, str(self.range_ms), str(self.step_ms))
        return hashed_id(*(part.encode() for part in parts))


def add_queries(tx: Connection, entries: Sequence[LoggedQuery], max_queries: int) -> int:
    """Add to today's rows; of an org that has `max_queries` of them, further queries are left out. Return how many."""
    today = datetime.now(UTC).date()
    left_out = 0
    for org_id in sorted({entry.org_id for entry in entries}):
        rows = tx.execute("SELECT query_id FROM query_log WHERE org_id = %s AND day = %s", [org_id, today]).fetchall()
        known = {row["query_id"] for row in rows}
        # In one order, so that two processes do not wait for each other.
        for entry in sorted((each for each in entries if each.org_id == org_id), key=lambda each: each.query_id):
            if entry.query_id not in known and len(known) >= max_queries:
                left_out += 1
                continue
            known.add(entry.query_id)
            tx.execute(
                "INSERT INTO query_log AS l (org_id, day, query_id, language, query, range_ms, step_ms, asked, cached,"
                " rewritten, rows_read, bytes_read, cpu_s, elapsed_s, asked_by, asked_at)"
                " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, now())"
                " ON CONFLICT (org_id, day, query_id) DO UPDATE SET asked = l.asked + excluded.asked,"
                " cached = l.cached + excluded.cached, rewritten = l.rewritten + excluded.rewritten,"
                " rows_read = l.rows_read + excluded.rows_read, bytes_read = l.bytes_read + excluded.bytes_read,"
                " cpu_s = l.cpu_s + excluded.cpu_s, elapsed_s = l.elapsed_s + excluded.elapsed_s,"
                " asked_by = excluded.asked_by, asked_at = excluded.asked_at",
                [
                    entry.org_id, today, entry.query_id, entry.language, entry.query, entry.range_ms, entry.step_ms,
                    entry.asked, entry.cached, entry.rewritten, entry.rows_read, entry.bytes_read, entry.cpu_s,
                    entry.elapsed_s, entry.asked_by,
                ],
            )  # fmt: skip
    return left_out


def logged_queries(tx: Connection, org_id: uuid.UUID, days: int, limit: int) -> list[LoggedQuery]:
    """The org's queries of the last days, today included, that took the most CPU time, with sums over the days."""
    rows = tx.execute(
        "SELECT org_id, language, query, range_ms, step_ms, max(asked_by) AS asked_by, sum(asked)::bigint AS asked,"
        " sum(cached)::bigint AS cached, sum(rewritten)::bigint AS rewritten, sum(rows_read)::bigint AS rows_read,"
        " sum(bytes_read)::bigint AS bytes_read, sum(cpu_s) AS cpu_s, sum(elapsed_s) AS elapsed_s FROM query_log"
        " WHERE org_id = %s AND day > (now() AT TIME ZONE 'UTC')::date - %s"
        " GROUP BY org_id, query_id, language, query, range_ms, step_ms ORDER BY sum(cpu_s) DESC, query_id LIMIT %s",
        [org_id, days, limit],
    ).fetchall()
    return [LoggedQuery(**row) for row in rows]


def forget_queries(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete rows of days that ended this long ago, up to a limit; return how many."""
    return tx.execute(
        "DELETE FROM query_log WHERE (org_id, day, query_id) IN (SELECT org_id, day, query_id FROM query_log"
        " WHERE day < (now() AT TIME ZONE 'UTC' - make_interval(secs => %s))::date LIMIT %s)",
        [keep_s, limit],
    ).rowcount
