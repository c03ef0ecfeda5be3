"""A count that takes too long degrades the status; the rest of it is there."""

import psycopg

from lakerunner.index.database import Database
from lakerunner.index.status import index_status


def test_a_part_that_does_not_come_is_named_and_the_others_are_there(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as blocking:
        blocking.execute("LOCK TABLE outbox")
        status = index_status(database, part_s=0.1)
    assert (status.outbox, status.degraded) == (None, ["outbox"])
    assert status.objects == {"seen": 0, "bundled": 0, "done": 0, "quarantined": 0}
    assert status.leaders == {}
    assert index_status(database).degraded == []
