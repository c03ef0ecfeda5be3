import uuid

from lakerunner.index import ledger, work
from lakerunner.index.database import Database
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
