"""Rounds of the canary: which known rows were written when, and what the last look found of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakerunner.index.database import Connection

_COLUMNS = "round_id, signal, key, rows, event_ns, written_at, visible_at, found, distinct_found"


@dataclass(frozen=True, slots=True)
class CanaryRound:
    """One signal's object of a round. All its rows have the same event time."""

    round_id: int
    signal: str
    key: str
    rows: int
    event_ns: int
    written_at: datetime
    visible_at: datetime | None = None
    found: int = 0
    distinct_found: int = 0


def put_round(tx: Connection, each: CanaryRound) -> None:
    """Remember a round before its object is written: a canary that dies in between looks for it and reports a loss."""
    tx.execute(
        "INSERT INTO canary_round (round_id, signal, key, rows, event_ns) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING",
        [each.round_id, each.signal, each.key, each.rows, each.event_ns],
    )


def waiting_rounds(tx: Connection, limit: int = 100) -> list[CanaryRound]:
    """Rounds whose rows could not be queried yet, oldest first."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM canary_round WHERE visible_at IS NULL ORDER BY written_at LIMIT %s",  # noqa: S608
        [limit],
    ).fetchall()
    return [CanaryRound(**row) for row in rows]


def oldest_rounds(tx: Connection, limit: int) -> list[CanaryRound]:
    """The oldest rounds that were visible once: they have been through every stage."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM canary_round WHERE visible_at IS NOT NULL ORDER BY round_id LIMIT %s",  # noqa: S608
        [limit],
    ).fetchall()
    return [CanaryRound(**row) for row in rows]


def rounds_of_age(tx: Connection, ages: Sequence[tuple[float, float]]) -> list[CanaryRound]:
    """Rounds that were visible once and whose age in seconds lies in one of the ranges."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM canary_round WHERE visible_at IS NOT NULL AND EXISTS (SELECT"  # noqa: S608
        " FROM unnest(%s::float8[], %s::float8[]) AS age(from_s, to_s)"
        " WHERE written_at <= now() - make_interval(secs => age.from_s)"
        " AND written_at > now() - make_interval(secs => age.to_s)) ORDER BY round_id",
        [[from_s for from_s, _ in ages], [to_s for _, to_s in ages]],
    ).fetchall()
    return [CanaryRound(**row) for row in rows]


def put_look(tx: Connection, each: CanaryRound, found: int, distinct: int) -> None:
    """Store what a look found. All rows there for the first time: now they are visible."""
    tx.execute(
        "UPDATE canary_round SET found = %s, distinct_found = %s,"
        " visible_at = CASE WHEN visible_at IS NULL AND %s >= rows THEN now() ELSE visible_at END"
        " WHERE round_id = %s AND signal = %s",
        [found, distinct, distinct, each.round_id, each.signal],
    )


def forget_rounds(tx: Connection, keep_s: float) -> list[str]:
    """Delete the rounds that are older; return the keys of their raw objects."""
    rows = tx.execute(
        "DELETE FROM canary_round WHERE written_at < now() - make_interval(secs => %s) RETURNING key", [keep_s]
    ).fetchall()
    return [row["key"] for row in rows]


@dataclass(frozen=True, slots=True)
class CanarySignal:
    """The canary's rows of one signal over the rounds that it remembers."""

    signal: str
    rounds: int
    #: Age of the oldest round that is not visible yet; 0 when all are.
    waiting_s: float
    #: From written to visible, of the last hour's rounds.
    delay_p50_s: float | None
    delay_p99_s: float | None
    #: Rows of visible rounds that the last look did not find, and rows that it found more than once.
    lost: int
    doubled: int


def by_signal(tx: Connection) -> list[CanarySignal]:
    rows = tx.execute(
        "SELECT signal, count(*) AS rounds, coalesce(max(extract(epoch FROM now() - written_at))"
        " FILTER (WHERE visible_at IS NULL), 0)::float8 AS waiting_s,"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM visible_at - written_at)::float8)"
        " FILTER (WHERE recent) AS delay_p50_s,"
        " percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM visible_at - written_at)::float8)"
        " FILTER (WHERE recent) AS delay_p99_s,"
        " coalesce(sum(rows - distinct_found) FILTER (WHERE visible_at IS NOT NULL), 0)::bigint AS lost,"
        " coalesce(sum(found - distinct_found), 0)::bigint AS doubled"
        " FROM (SELECT *, visible_at > now() - interval '1 hour' AS recent FROM canary_round) AS rounds"
        " GROUP BY signal ORDER BY signal",
    ).fetchall()
    return [CanarySignal(**row) for row in rows]
