"""The status of the index: raw objects, work items, segments, the outbox and the leaders of singleton roles."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import DictRow

from lakerunner.index import leases, ledger, outbox, segments, work
from lakerunner.index.database import Database
from lakerunner.index.ledger import Freshness
from lakerunner.index.outbox import Backlog


@dataclass(frozen=True, slots=True)
class IndexStatus:
    objects: dict[str, int]
    freshness: Freshness
    items: dict[str, int]
    segments: list[DictRow]
    outbox: Backlog
    #: Singleton role -> the process that leads it.
    leaders: dict[str, str]


def index_status(database: Database) -> IndexStatus:
    """Read the status from one snapshot, so that the numbers are consistent."""
    with database.transaction() as tx:
        tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return IndexStatus(
            objects=ledger.count_by_state(tx),
            freshness=ledger.freshness(tx),
            items=work.count_by_state(tx),
            segments=segments.count_by_state(tx),
            outbox=outbox.backlog(tx),
            leaders=leases.holders(tx),
        )
