"""The watermark: everything that arrived before it can be queried, as far as the ledger knows."""

import uuid
from datetime import UTC, datetime

import pytest

from lakerunner.index import ledger, tally, work
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Database
from lakerunner.index.ledger import ObjectState
from lakerunner.index.lookup import Want, find
from lakerunner.index.watermark import Watermark, furthest_behind
from lakerunner.index.work import WorkItem
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_S, TimeRange

ORG, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
T0_S = 1_700_000_000


def raw(name: str, arrived_s: float, signal: str = "logs", org_id: uuid.UUID = ORG) -> RawObject:
    return RawObject(
        org_id, "edge", signal, "s3://raw", name, "v", 10, arrived_ns=round((T0_S + arrived_s) * NS_PER_S)
    )  # fmt: skip


def arrive(database: Database, *objects: RawObject) -> None:
    with database.transaction() as tx:
        ledger.record_seen(tx, objects)


def ingest(database: Database, *objects: RawObject, reason: str | None = None) -> None:
    """Bundle the objects and commit them, with a segment of a day in the future of everything that arrived."""
    ids = [each.object_id for each in objects]
    first = objects[0]
    item_id = work.item_id("ingest", ids)
    with database.transaction() as tx:
        work.reopen_item(tx, WorkItem(item_id, "ingest", first.org_id, first.signal))
        ledger.bundle(tx, ids, item_id)
    event_ns = (T0_S * NS_PER_S // NS_PER_DAY + 9) * NS_PER_DAY
    made = Segment(fresh_id(), first.org_id, "edge", first.signal, TimeRange(event_ns, event_ns + 1), 1, 100)
    commit_item(database, ItemResult(item_id, [made], (), [ObjectOutcome(each, 1, reason) for each in ids]))


def watermark_s(database: Database, *signals: str, org_id: uuid.UUID = ORG) -> float | None:
    wants = [Want(signal, TimeRange(0, 1 << 60)) for signal in signals or ("logs",)]
    found_ms = database.read(lambda tx: find(tx, org_id, wants)).watermark_ms
    return None if found_ms is None else found_ms / 1000 - T0_S


def test_an_object_that_waits_holds_it_back_until_it_is_done(database: Database) -> None:
    a, b, c = raw("a", 1), raw("b", 2.5), raw("c", 3)
    assert watermark_s(database) is None
    arrive(database, a, b, c)
    assert watermark_s(database) == 1
    ingest(database, a, c)
    assert watermark_s(database) == 2.5, "c can be queried, but not yet everything before it"
    with database.transaction() as tx:
        work.create_item(tx, WorkItem(work.item_id("ingest", [b.object_id]), "ingest", ORG, "logs"))
        ledger.bundle(tx, [b.object_id], work.item_id("ingest", [b.object_id]))
    assert watermark_s(database) == 2.5, "an object in work is not done"
    with database.transaction() as tx:
        tx.execute("UPDATE raw_object SET state = 'seen', item_id = NULL WHERE state = 'bundled'")
    ingest(database, b)
    assert watermark_s(database) == 3


def test_an_object_that_is_noticed_late_moves_it_back_to_its_arrival(database: Database) -> None:
    on_time, late = raw("on time", 100), raw("late", 40)
    arrive(database, on_time)
    ingest(database, on_time)
    arrive(database, late)
    assert watermark_s(database) == 40
    ingest(database, late)
    assert watermark_s(database) == 100


def test_quarantine_does_not_hold_it_back_but_is_counted(database: Database) -> None:
    bad, good = raw("bad", 1), raw("good", 2)
    arrive(database, bad, good)
    ingest(database, bad, reason="torn at byte 7")
    assert watermark_s(database) == 2
    ingest(database, good)
    at_2_s = datetime.fromtimestamp(T0_S + 2, UTC)
    with database.transaction() as tx:
        assert furthest_behind(tx, 10) == [Watermark(ORG, "logs", at_2_s, 0, 1)]
        ledger.release_quarantined(tx, None)
    assert watermark_s(database) == 1, "to be read again, it waits again"


def test_orgs_and_signals_have_their_own(database: Database) -> None:
    logs, spans, theirs = raw("a", 5), raw("b", 3, "traces"), raw("c", 1, org_id=OTHER)
    arrive(database, logs, spans, theirs)
    ingest(database, logs)
    assert (watermark_s(database), watermark_s(database, "traces")) == (5, 3)
    assert watermark_s(database, "logs", "traces") == 3, "of a query over both, the lesser"
    assert watermark_s(database, org_id=OTHER) == 1
    with database.transaction() as tx:
        behind = [(each.org_id, each.signal, each.waiting) for each in furthest_behind(tx, 10)]
    assert behind == [(OTHER, "logs", 1), (ORG, "traces", 1), (ORG, "logs", 0)]


@pytest.mark.parametrize("folded", [True, False])
def test_forgetting_what_is_done_does_not_move_it_back(database: Database, folded: bool) -> None:
    arrive(database, raw("a", 1), raw("b", 2))
    ingest(database, raw("a", 1), raw("b", 2))
    with database.transaction() as tx:
        if folded:
            tally.fold(tx, 100)
        tx.execute("UPDATE raw_object SET ended_at = ended_at - interval '1 hour'")
        assert ledger.forget_ended(tx, ObjectState.DONE, 60, 10) == 2
        if folded:
            tally.fold(tx, 100)
    assert watermark_s(database) == 2


def test_a_clock_that_is_ahead_does_not_promise_the_future(database: Database) -> None:
    arrive(database, raw("a", 5_000_000_000))
    found = watermark_s(database)
    assert found is not None and T0_S + found < datetime.now(UTC).timestamp() + 60
