"""Objectives: which share of events must be good, measured by the minute, and how fast the allowed rest is used up.

A minute's row holds how many events there were and how many met the objective. The burn rate of a window is the share
of bad events in it, divided by the share that the objective allows: at 1, the allowance lasts exactly for its period.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakerunner.index.database import Connection

FRESHNESS, QUERY_LATENCY = "freshness", "query_latency"
#: Minutes are kept this long: the longest window is three days.
KEEP_S = 4 * 86_400.0
#: Objects that still wait are counted no further than this.
_MAX_WAITING = 10_000


@dataclass(frozen=True, slots=True)
class Minute:
    """The events of one minute, as one process measured them."""

    objective: str
    source: str
    minute: datetime
    good: int
    total: int


def put_minute(tx: Connection, minute: Minute) -> None:
    """Store a minute. Measured again, it replaces what was there."""
    tx.execute(
        "INSERT INTO objective_minute (objective, source, minute, good, total) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (objective, minute, source) DO UPDATE SET good = excluded.good, total = excluded.total",
        [minute.objective, minute.source, minute.minute, minute.good, minute.total],
    )


def measure_freshness(tx: Connection, minute: datetime, target_s: float) -> list[Minute]:
    """Raw objects of each signal in the minute that ends with `minute` + 60 s: those visible in time are good.

    An object that still waits past the target at the end of the minute is bad in every such minute: a pipeline that
    stands still must not look well because nothing ends.
    """
    rows = tx.execute(
        "WITH ended AS (SELECT signal, ended_at - seen_at <= make_interval(secs => %(target)s) AS good"
        " FROM raw_object WHERE state = 'done' AND ended_at >= %(minute)s AND ended_at < %(minute)s"
        " + interval '1 minute'), waiting AS (SELECT signal, false AS good FROM raw_object WHERE state IN ('seen',"
        " 'bundled') AND seen_at < %(minute)s + interval '1 minute' - make_interval(secs => %(target)s)"
        " LIMIT %(limit)s) SELECT signal, count(*) AS total, count(*) FILTER (WHERE good) AS good"
        " FROM (SELECT * FROM ended UNION ALL SELECT * FROM waiting) AS events GROUP BY signal",
        {"target": target_s, "minute": minute, "limit": _MAX_WAITING},
    ).fetchall()
    return [Minute(FRESHNESS, row["signal"], minute, row["good"], row["total"]) for row in rows]


@dataclass(frozen=True, slots=True)
class Burn:
    """An objective over one window that ends now."""

    objective: str
    window_s: int
    good: int
    total: int

    def rate(self, share: float) -> float:
        """The burn rate if this share of events must be good.

        >>> Burn("freshness", 3600, 980, 1000).rate(0.99)
        2.0
        """
        return 0.0 if not self.total else round((self.total - self.good) / self.total / (1 - share), 9)


def burns(tx: Connection, windows_s: tuple[int, ...]) -> list[Burn]:
    """The sums of every objective over each window; a window without events is absent."""
    rows = tx.execute(
        "SELECT m.objective, w.window_s, sum(m.good)::bigint AS good, sum(m.total)::bigint AS total"
        " FROM unnest(%s::int[]) AS w(window_s) JOIN objective_minute m"
        " ON m.minute > now() - make_interval(secs => w.window_s) AND m.minute <= now()"
        " GROUP BY m.objective, w.window_s ORDER BY m.objective, w.window_s",
        [list(windows_s)],
    ).fetchall()
    return [Burn(**row) for row in rows]


def forget_minutes(tx: Connection, limit: int) -> int:
    """Delete up to `limit` minutes that no window reaches; return their number."""
    return tx.execute(
        "DELETE FROM objective_minute WHERE ctid = ANY(ARRAY(SELECT ctid FROM objective_minute"
        " WHERE minute < now() - make_interval(secs => %s) ORDER BY minute LIMIT %s))",
        [KEEP_S, limit],
    ).rowcount
