import threading
import time
import uuid

from lakerunner.index import ledger, work
from lakerunner.index.database import Database
from lakerunner.index.ledger import ObjectState
from lakerunner.model.raw_object import RawObject

ORG = uuid.UUID(int=7)


def raw(key: str, version: str = "v1") -> RawObject:
    return RawObject(ORG, "edge", "logs", "s3://raw", key, version, 10)


def test_an_object_is_new_once(database: Database) -> None:
    with database.transaction() as tx:
        assert ledger.record_seen(tx, [raw("a"), raw("b"), raw("a")]) == [raw("a"), raw("b")]
    with database.transaction() as tx:
        assert ledger.record_seen(tx, [raw("a"), raw("c")]) == [raw("c")]


def test_uploaded_again_it_is_another_object(database: Database) -> None:
    with database.transaction() as tx:
        ledger.record_seen(tx, [raw("a")])
        assert ledger.record_seen(tx, [raw("a", "v2")]) == [raw("a", "v2")]


def test_an_object_belongs_to_one_item(database: Database) -> None:
    with database.transaction() as tx:
        ledger.record_seen(tx, [raw("a"), raw("b")])
        a, b = raw("a").object_id, raw("b").object_id
        first, second = work.item_id("ingest", [a]), work.item_id("ingest", [a, b])
        assert ledger.bundle(tx, [a], first) == [a]
        assert ledger.bundle(tx, [a, b], second) == [b]
        assert ledger.lock_seen(tx, [a, b]) == set()
        found = ledger.objects_of_items(tx, [first, second])
        assert {item: [each for each, _ in objects] for item, objects in found.items()} == {
            first: [raw("a")],
            second: [raw("b")],
        }


def test_parts_of_a_name_do_not_run_together() -> None:
    one = RawObject(ORG, "edge", "logs", "s3://a", "b", "c", 1)
    other = RawObject(ORG, "edge", "logs", "s3://ab", "", "c", 1)
    assert one.object_id != other.object_id


def test_an_items_id_is_that_of_its_inputs_in_any_order() -> None:
    a, b = uuid.uuid4(), uuid.uuid4()
    assert work.item_id("ingest", [a, b]) == work.item_id("ingest", [b, a])
    assert work.item_id("ingest", [a]) != work.item_id("compact", [a])


def ended(database: Database, *objects: RawObject, days_ago: float) -> None:
    """The objects are done, since so long."""
    with database.transaction() as tx:
        ledger.record_seen(tx, objects)
        tx.execute(
            "UPDATE raw_object SET state = 'done', item_id = %s, ended_at = now() - make_interval(secs => %s)"
            " WHERE object_id = ANY(%s)",
            [uuid.uuid4(), days_ago * 86_400, [each.object_id for each in objects]],
        )


def arrived(key: str, days_ago: float, org_id: uuid.UUID = ORG) -> RawObject:
    at_ns = time.time_ns() - round(days_ago * 86_400e9)
    return RawObject(org_id, "edge", "logs", "s3://raw", key, "v1", 10, arrived_ns=at_ns)


def forget(database: Database, keep_days: float, limit: int = 100) -> int:
    with database.transaction() as tx:
        return ledger.forget_ended(tx, ObjectState.DONE, keep_days * 86_400, limit)


def record(database: Database, *objects: RawObject) -> list[str]:
    with database.transaction() as tx:
        return [each.key for each in ledger.record_seen(tx, objects)]


def test_a_forgotten_object_is_never_new_again(database: Database) -> None:
    old, recent = arrived("old", 40), arrived("recent", 3)
    ended(database, old, days_ago=39)
    ended(database, recent, days_ago=2)
    assert forget(database, keep_days=30) == 1
    # It is still in the bucket: a listing, a backfill or an old event names it.
    assert record(database, old, recent, arrived("late", 20)) == ["late"]
    assert record(database, arrived("from before", 41)) == [], "perhaps it was ingested too"
    assert record(database, arrived("a new org's", 400, uuid.UUID(int=8))) == ["a new org's"]


def test_the_horizon_is_seen_by_an_insert_that_waited_for_the_deletion(database: Database) -> None:
    old = arrived("old", 40)
    ended(database, old, days_ago=39)
    new: list[list[str]] = []
    with database.transaction() as forgetting:
        ledger.forget_ended(forgetting, ObjectState.DONE, 30 * 86_400, 100)
        waiting = threading.Thread(target=lambda: new.append(record(database, old)))
        waiting.start()
        while not forgetting.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
            waiting.join(0.01)
    waiting.join()
    assert new == [[]]
    with database.transaction() as tx:
        assert ledger.count_by_state(tx)["seen"] == 0


def test_what_waits_is_never_forgotten_and_a_batch_is_a_batch(database: Database) -> None:
    done = [arrived(f"done {number}", 90) for number in range(5)]
    ended(database, *done, days_ago=80)
    assert record(database, arrived("waiting", 90), arrived("in work", 90)) == ["waiting", "in work"]
    with database.transaction() as tx:
        ledger.bundle(tx, [arrived("in work", 90).object_id], uuid.uuid4())
        tx.execute("UPDATE raw_object SET seen_at = now() - interval '89 days'")
    assert [forget(database, 30, limit=3) for _ in range(3)] == [3, 2, 0]
    with database.transaction() as tx:
        assert ledger.count_by_state(tx) == {"seen": 1, "bundled": 1, "done": 0, "quarantined": 0}
