"""The status of the index: what is counted, and what a count that takes too long leaves."""

import time
import uuid

import psycopg

from lakerunner.index.database import Database
from lakerunner.index.ended_segments import mark_lost
from lakerunner.index.listing import mark_found
from lakerunner.index.segments import ensure_partitions, insert_segments
from lakerunner.index.status import index_status
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY, TimeRange


def test_a_part_that_does_not_come_is_named_and_the_others_are_there(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as blocking:
        blocking.execute("LOCK TABLE outbox")
        status = index_status(database, part_s=0.1)
    assert (status.outbox, status.degraded) == (None, ["outbox"])
    assert status.objects == {"seen": 0, "bundled": 0, "done": 0, "quarantined": 0}
    assert status.leaders == {}
    assert index_status(database).degraded == []


def test_lost_segments_are_counted_until_they_are_back(database: Database) -> None:
    day_ns = time.time_ns() // NS_PER_DAY * NS_PER_DAY
    segment = Segment(fresh_id(), uuid.UUID(int=7), "shop", "logs", TimeRange(day_ns, day_ns + 1), 5, 100)
    ensure_partitions(database, [segment.index_day])
    with database.transaction() as tx:
        insert_segments(tx, [segment], fresh_id())

    def counted() -> dict[tuple[str, str], tuple[int, int]]:
        return {(each.signal, each.state): (each.segments, each.rows) for each in index_status(database).segments or ()}

    assert counted() == {("logs", "live"): (1, 5)}
    with database.transaction() as tx:
        assert mark_lost(tx, segment, ["its object"])
    assert counted() == {("logs", "lost"): (1, 5)}
    with database.transaction() as tx:
        assert mark_found(tx, [segment]) == 1
    assert counted() == {("logs", "live"): (1, 5)}
