"""One round of the sweeper: recovery first, then deletions, none of which touches what recovery needs."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from lakerunner.index import leases, ledger, outbox, work
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease
from lakerunner.index.work import WorkItem
from lakerunner.model.errors import LimitHit
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.ops.sweeper import Sweeper
from lakerunner.runtime.settings import BusSettings, IndexSettings, Settings, UpkeepSettings

ORG = uuid.UUID(int=7)
SOON = 1e-6
#: Everything that may be deleted is expired.
EAGER = {
    "upkeep": UpkeepSettings(
        outbox_keep_s=SOON, work_keep_s=SOON, raw_object_keep_s=SOON, quarantine_keep_s=SOON, rejected_keep_s=SOON
    ),
    "bus": BusSettings(retention_s=SOON, unread_retention_s=SOON, dead_retention_s=SOON),
}


@pytest.fixture
def sweeper(database_url: str) -> Iterator[Sweeper]:
    index = IndexSettings(url=database_url, statement_timeout_s=0.5)
    sweeper = Sweeper(Settings(index=index, **EAGER))
    yield sweeper
    sweeper.close()


@pytest.fixture
def lease(database: Database) -> Lease:
    lease = leases.acquire(database, "sweeper", "me", 60)
    assert lease is not None
    return lease


def raw(name: str) -> RawObject:
    return RawObject(ORG, "edge", "logs", "s3://raw", name, "v", 10)


def bundled(database: Database, *names: str) -> uuid.UUID:
    ids = [raw(name).object_id for name in names]
    item_id = work.item_id("ingest", ids)
    with database.transaction() as tx:
        ledger.record_seen(tx, [raw(name) for name in names])
        work.create_item(tx, WorkItem(item_id, "ingest", ORG, "logs"))
        ledger.bundle(tx, ids, item_id)
    return item_id


def age(database: Database) -> None:
    """Everything happened a year ago."""
    with database.transaction() as tx:
        for table, begun in (("raw_object", "seen_at"), ("work_item", "created_at")):
            tx.execute(
                f"UPDATE {table} SET {begun} = {begun} - interval '1 year', ended_at = ended_at - interval '1 year'"
            )


def count(database: Database, table: str) -> int:
    with database.transaction() as tx:
        row = tx.execute(f"SELECT count(*) AS n FROM {table}").fetchone()
    assert row is not None
    return int(row["n"])


def test_what_was_never_ended_is_announced_and_kept_at_any_age(
    database: Database, sweeper: Sweeper, lease: Lease
) -> None:
    with database.transaction() as tx:
        ledger.record_seen(tx, [raw("waiting")])
    bundled(database, "in work")
    ended = bundled(database, "done", "torn")
    outcomes = [ObjectOutcome(raw("done").object_id, 1), ObjectOutcome(raw("torn").object_id, 0, "torn")]
    commit_item(database, ItemResult(ended, (), (), outcomes))
    age(database)
    sweeper.sweep(lease)
    assert [each.message.topic for each in outbox.pending(database, 10)] == [
        "objstore.ingest.logs",
        "segments.logs.ingest",
    ]
    with database.transaction() as tx:
        assert ledger.count_by_state(tx) == {"seen": 1, "bundled": 1, "done": 0, "quarantined": 0}
        assert work.count_by_state(tx) == {"open": 1, "done": 0, "stale": 0}
    assert count(database, "tally_delta") < 20, "folded"


def test_an_ended_item_is_kept_while_one_of_its_objects_is_not_ended(
    database: Database, sweeper: Sweeper, lease: Lease
) -> None:
    item_id = bundled(database, "a", "b")
    commit_item(database, ItemResult(item_id, (), (), [ObjectOutcome(raw("a").object_id, 1)]))
    age(database)
    sweeper.sweep(lease)
    with database.transaction() as tx:
        assert work.count_by_state(tx)["done"] == 1
        tx.execute("UPDATE raw_object SET state = 'done', ended_at = seen_at WHERE state = 'bundled'")
    sweeper.sweep(lease)
    assert count(database, "work_item") == count(database, "raw_object") == 0


def test_a_deletion_that_fails_stops_neither_recovery_nor_the_others(
    database: Database, database_url: str, sweeper: Sweeper, lease: Lease
) -> None:
    with database.transaction() as tx:
        ledger.record_seen(tx, [raw("waiting")])
        outbox.put(tx, [outbox.Outgoing("t", "k", b"published")])
    outbox.mark_published(database, [outbox.pending(database, 1)[0].outbox_id])
    age(database)
    with psycopg.connect(database_url) as blocking:
        blocking.execute("LOCK TABLE ledger_horizon, intake_rejected")
        sweeper.sweep(lease)
    assert [each.message.topic for each in outbox.pending(database, 10)] == ["objstore.ingest.logs"]
    assert count(database, "outbox") == 1


def test_nothing_is_deleted_in_a_round_whose_recovery_failed(
    database: Database, database_url: str, sweeper: Sweeper, lease: Lease
) -> None:
    bundled(database, "waiting")
    ended = bundled(database, "done")
    commit_item(database, ItemResult(ended, (), (), [ObjectOutcome(raw("done").object_id, 1)]))
    age(database)
    with psycopg.connect(database_url) as blocking:
        blocking.execute("LOCK TABLE outbox")
        with pytest.raises(LimitHit):
            sweeper.sweep(lease)
    assert count(database, "work_item") == count(database, "raw_object") == 2
