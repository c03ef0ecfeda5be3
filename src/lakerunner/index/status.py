"""The status of the index: what is stored, what waits and how long, objectives, leaders of singleton roles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from psycopg.errors import QueryCanceled

from lakerunner.index import backlog, canary_rounds, leases, ledger, objectives, outbox, tally, work
from lakerunner.index.backlog import SignalFreshness, StageBacklog, TierLag
from lakerunner.index.canary_rounds import CanarySignal
from lakerunner.index.database import Connection, Database
from lakerunner.index.ledger import Freshness
from lakerunner.index.objectives import Burn
from lakerunner.index.outbox import Backlog
from lakerunner.index.tally import LevelCount, OrgCost, SegmentCount
from lakerunner.index.watermark import Watermark, furthest_behind
from lakerunner.runtime.metrics import SWALLOWED

T = TypeVar("T")
#: Each part has this long. All of them together take a few milliseconds when the index is healthy.
_PART_S = 3.0
#: Watermarks shown, those furthest behind first.
_WATERMARKS = 100
#: Orgs whose cost is shown, those that store most first.
_COSTS = 100
#: Windows of burn rates: short ones notice soon, long ones do not forget.
BURN_WINDOWS_S = (300, 1_800, 3_600, 21_600, 259_200)


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The numbers. A part that could not be read in time is None and named in `degraded`."""

    objects: dict[str, int] | None
    freshness: Freshness | None
    items: dict[str, int] | None
    segments: list[SegmentCount] | None
    watermarks: list[Watermark] | None
    outbox: Backlog | None
    #: Singleton role -> the process that leads it.
    leaders: dict[str, str] | None
    #: Open items by stage.
    stages: list[StageBacklog] | None
    signals: list[SignalFreshness] | None
    levels: list[LevelCount] | None
    tiers: list[TierLag] | None
    costs: list[OrgCost] | None
    burns: list[Burn] | None
    canary: list[CanarySignal] | None
    degraded: list[str]


def index_status(database: Database, part_s: float = _PART_S) -> IndexStatus:
    """Read the status from one snapshot, so that the numbers are consistent."""
    degraded: list[str] = []

    def part(name: str, read: Callable[[Connection], T]) -> T | None:
        try:
            with tx.transaction():
                return read(tx)
        except QueryCanceled:
            SWALLOWED.labels("status").inc()
            degraded.append(name)
            return None

    with database.transaction() as tx:
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        tx.execute(
            "SELECT set_config('statement_timeout', least(%s, nullif(setting::int, 0))::text, true)"
            " FROM pg_settings WHERE name = 'statement_timeout'",
            [round(part_s * 1000)],
        )
        return IndexStatus(
            objects=part("objects", ledger.count_by_state),
            freshness=part("freshness", ledger.freshness),
            items=part("items", work.count_by_state),
            segments=part("segments", tally.count_segments),
            watermarks=part("watermarks", lambda tx: furthest_behind(tx, _WATERMARKS)),
            outbox=part("outbox", outbox.backlog),
            leaders=part("leaders", leases.holders),
            stages=part("stages", backlog.open_items),
            signals=part("signals", backlog.freshness_by_signal),
            levels=part("levels", tally.count_levels),
            tiers=part("tiers", backlog.tier_lag),
            costs=part("costs", lambda tx: tally.cost_by_org(tx, _COSTS)),
            burns=part("burns", lambda tx: objectives.burns(tx, BURN_WINDOWS_S)),
            canary=part("canary", canary_rounds.by_signal),
            degraded=degraded,
        )
