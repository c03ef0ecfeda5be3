"""The windows of rollups, as tests look at them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.model.rollup_window import last_row_ns
from lakerunner.model.signals.tiers import ROLLED_TIERS_S
from lakerunner.model.time import NS_PER_DAY, TimeRange


@dataclass(frozen=True, slots=True)
class WindowState:
    """What a window covers, and what is still to be done for it."""

    tier_s: int
    start_ns: int
    end_ns: int
    dirty: bool
    sealed: bool


def window_states(tx: Connection, org_id: uuid.UUID, time_range: TimeRange) -> list[WindowState]:
    """The windows of all tiers that have rows of the range."""
    rows = tx.execute(
        "SELECT tier_s, start_ns, end_ns, dirty, sealed FROM rollup_window WHERE org_id = %s AND tier_s = ANY(%s)"
        " AND start_ns >= %s AND start_ns < %s AND end_ns >= %s ORDER BY tier_s, start_ns",
        [
            org_id, list(ROLLED_TIERS_S), time_range.start_ns - NS_PER_DAY - 1, last_row_ns(time_range),
            time_range.start_ns,
        ],
    ).fetchall()  # fmt: skip
    return [WindowState(**row) for row in rows]
