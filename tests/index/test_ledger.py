import uuid

from lakerunner.index import ledger, work
from lakerunner.index.database import Database
from lakerunner.index.ledger import RawObject

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
        assert ledger.objects_of_item(tx, first) == [raw("a")]


def test_parts_of_a_name_do_not_run_together() -> None:
    assert ledger.object_id("s3://a", "b", "c") != ledger.object_id("s3://ab", "", "c")


def test_an_items_id_is_that_of_its_inputs_in_any_order() -> None:
    a, b = uuid.uuid4(), uuid.uuid4()
    assert work.item_id("ingest", [a, b]) == work.item_id("ingest", [b, a])
    assert work.item_id("ingest", [a]) != work.item_id("compact", [a])
