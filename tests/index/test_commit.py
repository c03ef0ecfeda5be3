"""Commits are exactly-once: attempts in any order apply their changes once or not at all."""

import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.index import ledger, outbox, work
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.outbox import Outgoing
from lakerunner.index.segments import SegmentRef, live_segments, ref
from lakerunner.index.status import index_status
from lakerunner.index.work import ItemState, WorkItem
from lakerunner.model.errors import Bug, Missing
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_S, TimeRange

ORG = uuid.UUID(int=7)
ALWAYS = TimeRange(0, 8_000_000_000 * NS_PER_S)


def segment(start_ns: int = 1_700_000_000 * NS_PER_S, rows: int = 10) -> Segment:
    return Segment(fresh_id(), ORG, "edge", "logs", TimeRange(start_ns, start_ns + NS_PER_S), rows, 100)


def raw_object(name: str) -> RawObject:
    return RawObject(ORG, "edge", "logs", "s3://raw", name, "etag", 10)


def open_item(database: Database, stage: str, inputs: Sequence[uuid.UUID]) -> uuid.UUID:
    item_id = work.item_id(stage, inputs)
    with database.transaction() as tx:
        work.create_item(tx, WorkItem(item_id, stage, ORG, "logs"))
    return item_id


def ingest_item(database: Database, *names: str) -> tuple[uuid.UUID, list[uuid.UUID]]:
    objects = [raw_object(name) for name in names]
    ids = [obj.object_id for obj in objects]
    with database.transaction() as tx:
        ledger.record_seen(tx, objects)
    item_id = open_item(database, "ingest", ids)
    with database.transaction() as tx:
        assert set(ledger.bundle(tx, ids, item_id)) == set(ids)
    return item_id, ids


def live(database: Database) -> set[uuid.UUID]:
    with database.transaction() as tx:
        return {s.segment_id for s in live_segments(tx, ORG, "logs", ALWAYS)}


def test_everything_becomes_true_together(database: Database) -> None:
    item_id, (good, bad) = ingest_item(database, "good", "bad")
    made = segment()
    outcome = commit_item(
        database,
        ItemResult(
            item_id,
            made=[made],
            objects=[ObjectOutcome(good, 10), ObjectOutcome(bad, 0, "torn at byte 7")],
            follow_ups=[Outgoing("boxer.logs.compact", "k", b"{}")],
        ),
    )
    assert outcome is Outcome.COMMITTED
    status = index_status(database)
    assert live(database) == {made.segment_id}
    assert status.objects == {"seen": 0, "bundled": 0, "done": 1, "quarantined": 1}
    assert status.items == {"open": 0, "done": 1, "stale": 0}
    assert [p.message.topic for p in outbox.pending(database, 10)] == ["boxer.logs.compact"]


def test_a_second_attempt_changes_nothing(database: Database) -> None:
    item_id, ids = ingest_item(database, "a")
    first, second = segment(), segment()
    outcomes = [ObjectOutcome(ids[0], 10)]
    message = [Outgoing("boxer.logs.compact", "k", b"{}")]
    assert commit_item(database, ItemResult(item_id, [first], (), outcomes, message)) is Outcome.COMMITTED
    assert commit_item(database, ItemResult(item_id, [second], (), outcomes, message)) is Outcome.ALREADY
    assert live(database) == {first.segment_id}
    assert len(outbox.pending(database, 10)) == 1


def test_attempts_at_once_commit_once(database: Database) -> None:
    item_id, ids = ingest_item(database, "a")
    outcomes: list[Outcome] = []

    def attempt() -> None:
        outcomes.append(commit_item(database, ItemResult(item_id, [segment()], (), [ObjectOutcome(ids[0], 10)])))

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [Outcome.ALREADY] * 5 + [Outcome.COMMITTED]
    assert len(live(database)) == 1


def stored(database: Database, *segments: Segment) -> None:
    item_id = open_item(database, "seed", [s.segment_id for s in segments])
    assert commit_item(database, ItemResult(item_id, segments)) is Outcome.COMMITTED


def test_compaction_replaces_its_inputs(database: Database) -> None:
    a, b, merged = segment(), segment(), segment(rows=20)
    stored(database, a, b)
    item_id = open_item(database, "compact", [a.segment_id, b.segment_id])
    assert commit_item(database, ItemResult(item_id, [merged], [ref(a), ref(b)])) is Outcome.COMMITTED
    assert live(database) == {merged.segment_id}


def test_an_item_whose_input_is_gone_is_stale_and_does_nothing(database: Database) -> None:
    a, b, c = segment(), segment(), segment()
    stored(database, a, b, c)
    first = open_item(database, "compact", [a.segment_id, b.segment_id])
    second = open_item(database, "compact", [b.segment_id, c.segment_id])
    ab, bc = segment(rows=20), segment(rows=20)
    assert commit_item(database, ItemResult(first, [ab], [ref(a), ref(b)])) is Outcome.COMMITTED
    message = [Outgoing("boxer.logs.compact", "k", b"{}")]
    assert commit_item(database, ItemResult(second, [bc], [ref(b), ref(c)], (), message)) is Outcome.STALE
    assert live(database) == {ab.segment_id, c.segment_id}
    assert outbox.pending(database, 10) == []
    with database.transaction() as tx:
        assert work.load_items(tx, [second]) == ({}, {second: ItemState.STALE})
    assert commit_item(database, ItemResult(second, [bc], [ref(b), ref(c)])) is Outcome.STALE


def test_overlapping_items_at_once_leave_each_row_visible_once(database: Database) -> None:
    inputs = [segment() for _ in range(6)]
    stored(database, *inputs)
    items = []
    for nth in range(5):
        pair = inputs[nth : nth + 2]
        items.append((open_item(database, "compact", [s.segment_id for s in pair]), pair))

    def attempt(item_id: uuid.UUID, pair: list[Segment]) -> None:
        commit_item(database, ItemResult(item_id, [segment(rows=20)], [ref(s) for s in pair]))

    threads = [threading.Thread(target=attempt, args=item) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.transaction() as tx:
        assert sum(s.row_count for s in live_segments(tx, ORG, "logs", ALWAYS)) == 60


def test_objects_of_another_item_cannot_be_ended(database: Database) -> None:
    mine, _ = ingest_item(database, "mine")
    _, theirs = ingest_item(database, "theirs")
    with pytest.raises(Bug, match="not its own"):
        commit_item(database, ItemResult(mine, [segment()], (), [ObjectOutcome(theirs[0], 10)]))
    assert live(database) == set()
    with database.transaction() as tx:
        assert list(work.load_items(tx, [mine])[0]) == [mine]


def test_an_unknown_item_is_missing(database: Database) -> None:
    with pytest.raises(Missing):
        commit_item(database, ItemResult(uuid.uuid4(), [segment()]))


def test_any_day_finds_a_partition(database: Database) -> None:
    odd = [segment(0), segment(4_102_444_800 * NS_PER_S), segment(1_700_000_000 * NS_PER_S)]
    stored(database, *odd)
    assert live(database) == {s.segment_id for s in odd}


def test_partitions_made_by_many_at_once(database: Database) -> None:
    errors: list[Exception] = []

    def attempt(nth: int) -> None:
        try:
            stored(database, *(segment(month * 31 * NS_PER_DAY) for month in range(nth, nth + 3)))
        except Exception as error:  # noqa: BLE001  (shown by the assertion)
            errors.append(error)

    threads = [threading.Thread(target=attempt, args=(nth,)) for nth in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    starts=st.lists(st.integers(0, 20 * NS_PER_DAY), min_size=1, max_size=6),
    start=st.integers(0, 20 * NS_PER_DAY),
    width=st.integers(1, 5 * NS_PER_DAY),
)
def test_a_lookup_finds_what_overlaps(database: Database, starts: list[int], start: int, width: int) -> None:
    org = uuid.uuid4()
    segments = [replace(segment(at), org_id=org) for at in starts]
    stored(database, *segments)
    wanted = TimeRange(start, start + width)
    with database.transaction() as tx:
        found = {s.segment_id for s in live_segments(tx, org, "logs", wanted)}
    assert found == {s.segment_id for s in segments if s.time_range.overlaps(wanted)}


def test_what_comes_back_is_what_was_stored(database: Database) -> None:
    one = segment()
    stored(database, one)
    with database.transaction() as tx:
        assert live_segments(tx, ORG, "logs", ALWAYS) == [one]
        assert live_segments(tx, ORG, "traces", ALWAYS) == []
        assert live_segments(tx, uuid.uuid4(), "logs", ALWAYS) == []
    assert ref(one) == SegmentRef(one.dateint, one.segment_id)
