"""What waits in the index: open items of each stage, raw objects by signal, tier windows that are not made yet.

Each number is counted no further than a limit, from an index that holds only what waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakerunner.index.database import Connection

#: Counted no further than this.
MAX_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class StageBacklog:
    """Open items of a stage, and the age of the oldest."""

    stage: str
    open: int
    oldest_s: float


def open_items(tx: Connection) -> list[StageBacklog]:
    rows = tx.execute(
        "SELECT stage, count(*) AS open, max(extract(epoch FROM now() - created_at))::float8 AS oldest_s FROM"
        " (SELECT stage, created_at FROM work_item WHERE state = 'open' ORDER BY stage, created_at LIMIT %s) AS waiting"
        " GROUP BY stage ORDER BY stage",
        [MAX_COUNTED],
    ).fetchall()
    return [StageBacklog(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class SignalFreshness:
    """The latest raw objects of a signal: from arrival to visible. `oldest_waiting_s` is 0 when none waits."""

    signal: str
    objects: int
    p50_s: float | None
    p99_s: float | None
    oldest_waiting_s: float


def freshness_by_signal(tx: Connection, minutes: int = 5) -> list[SignalFreshness]:
    rows = tx.execute(
        "WITH done AS (SELECT signal, extract(epoch FROM ended_at - seen_at)::float8 AS took_s FROM raw_object"
        " WHERE state = 'done' AND ended_at > now() - make_interval(mins => %(minutes)s) ORDER BY ended_at DESC"
        " LIMIT %(limit)s), of_done AS (SELECT signal, count(*) AS objects, percentile_cont(0.5) WITHIN GROUP"
        " (ORDER BY took_s) AS p50_s, percentile_cont(0.99) WITHIN GROUP (ORDER BY took_s) AS p99_s FROM done"
        # One lookup per org and signal that has waiting objects, by the running totals.
        " GROUP BY signal), waiting AS (SELECT signal, max(extract(epoch FROM now() - o.arrived_at))::float8"
        " AS oldest_s FROM (SELECT org_id, signal FROM (SELECT * FROM tally UNION ALL SELECT * FROM tally_delta) AS t"
        " WHERE subject = 'raw_object' AND state IN ('seen', 'bundled') GROUP BY org_id, signal HAVING sum(count) > 0)"
        " AS w CROSS JOIN LATERAL (SELECT r.arrived_at FROM raw_object r WHERE r.org_id = w.org_id"
        " AND r.signal = w.signal AND r.state IN ('seen', 'bundled') ORDER BY r.arrived_at LIMIT 1) AS o"
        " GROUP BY signal)"
        " SELECT signal, coalesce(objects, 0) AS objects, p50_s, p99_s, coalesce(oldest_s, 0) AS oldest_waiting_s"
        " FROM of_done FULL JOIN waiting USING (signal) ORDER BY signal",
        {"minutes": minutes, "limit": MAX_COUNTED},
    ).fetchall()
    return [SignalFreshness(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class TierLag:
    """Windows of a tier that are over and not made from all their rows: how many, and since when the oldest is over."""

    tier_s: int
    windows: int
    lag_s: float


def tier_lag(tx: Connection) -> list[TierLag]:
    rows = tx.execute(
        # `least`: a window of the past may have become dirty a moment ago, by late rows.
        "SELECT tier_s, count(*) AS windows, max(least(extract(epoch FROM now()) - end_ns / 1e9,"
        " extract(epoch FROM now() - dirty_at)))::float8 AS lag_s FROM (SELECT tier_s, end_ns, dirty_at"
        " FROM rollup_window WHERE dirty AND item_id IS NULL AND NOT sealed"
        " AND end_ns < extract(epoch FROM now()) * 1e9 ORDER BY end_ns LIMIT %s) AS due"
        " GROUP BY tier_s ORDER BY tier_s",
        [MAX_COUNTED],
    ).fetchall()
    return [TierLag(**row) for row in rows]
