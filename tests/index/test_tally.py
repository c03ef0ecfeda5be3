"""The counts equal the rows, whatever happened and however much of it is folded."""

import random
import uuid
from collections.abc import Iterator

from lakerunner.index import ledger, tally, work
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Connection, Database
from lakerunner.index.ledger import ObjectState
from lakerunner.index.segments import ref
from lakerunner.index.work import WorkItem
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange

ORGS = [uuid.UUID(int=7), uuid.UUID(int=8)]
SEED = 20261116


def counted(tx: Connection, table: str) -> dict[str, int]:
    rows = tx.execute(f"SELECT state, count(*) AS count FROM {table} GROUP BY state").fetchall()
    return {row["state"]: row["count"] for row in rows}


def segments_counted(tx: Connection) -> list[tuple[str, str, int, int, int]]:
    rows = tx.execute(
        "SELECT signal, state, count(*) AS n, sum(row_count)::bigint AS r, sum(size_bytes)::bigint AS b"
        " FROM segment GROUP BY signal, state ORDER BY signal, state"
    ).fetchall()
    return [(row["signal"], row["state"], row["n"], row["r"], row["b"]) for row in rows]


def levels_counted(tx: Connection) -> list[tuple[str, int, int, int, int, int]]:
    rows = tx.execute(
        "SELECT signal, level, tier_s, count(*) AS n, sum(row_count)::bigint AS r, sum(size_bytes)::bigint AS b"
        " FROM segment WHERE state = 'live' GROUP BY signal, level, tier_s ORDER BY signal, tier_s, level"
    ).fetchall()
    return [(row["signal"], row["level"], row["tier_s"], row["n"], row["r"], row["b"]) for row in rows]


def bytes_counted(tx: Connection) -> dict[uuid.UUID, int]:
    rows = tx.execute("SELECT org_id, sum(size_bytes)::bigint AS b FROM segment GROUP BY org_id").fetchall()
    return {row["org_id"]: row["b"] for row in rows}


def segment(choice: random.Random, org_id: uuid.UUID) -> Segment:
    # Two months, so that statements touch two partitions.
    start_ns = choice.choice([0, 40 * 86_400 * 10**9])
    time_range, level = TimeRange(start_ns, start_ns + 1), choice.randint(0, 2)
    return Segment(fresh_id(), org_id, "edge", "logs", time_range, choice.randint(1, 9), 100, level=level)


def happenings(database: Database, choice: random.Random) -> Iterator[None]:
    """Objects come, are bundled, end, are released and forgotten; segments come and are superseded."""
    live: list[Segment] = []
    for number in range(40):
        org_id = choice.choice(ORGS)
        names = [f"{number}/{nth}" for nth in range(choice.randint(1, 4))]
        objects = [RawObject(org_id, "edge", "logs", "s3://raw", name, "v", 10) for name in names]
        ids = [each.object_id for each in objects]
        item_id = work.item_id("ingest", ids)
        with database.transaction() as tx:
            ledger.record_seen(tx, [*objects, *objects])
        yield
        with database.transaction() as tx:
            work.reopen_item(tx, WorkItem(item_id, "ingest", org_id, "logs"))
            ledger.bundle(tx, ids, item_id)
        yield
        outcomes = [ObjectOutcome(each, 1, choice.choice([None, "torn"])) for each in ids]
        made = [segment(choice, org_id) for _ in range(choice.randint(0, 3))]
        old = live[:1] if choice.random() < 0.5 else []
        commit_item(database, ItemResult(item_id, made, [ref(each) for each in old], outcomes))
        live = [*live[len(old) :], *made]
        yield
        with database.transaction() as tx:
            chosen = choice.randint(0, 4)
            if chosen == 0:
                ledger.release_quarantined(tx, None)
            elif chosen == 1:
                ledger.forget_ended(tx, choice.choice([ObjectState.DONE, ObjectState.QUARANTINED]), 1e-6, 3)
            elif chosen == 2:
                work.forget_ended(tx, 1e-6, 2)
            elif chosen == 3:
                tally.fold(tx, choice.randint(1, 50))
        yield


def test_counts_equal_the_rows_after_every_change(database: Database) -> None:
    states: set[str] = set()
    for _ in happenings(database, random.Random(SEED)):
        with database.transaction() as tx:
            for table in ("raw_object", "work_item"):
                assert tally.count_by_state(tx, table) == counted(tx, table)
                states |= counted(tx, table).keys()
            totals = [(t.signal, t.state, t.segments, t.rows, t.bytes) for t in tally.count_segments(tx)]
            assert totals == segments_counted(tx)
            levels = [(t.signal, t.level, t.tier_s, t.segments, t.rows, t.bytes) for t in tally.count_levels(tx)]
            assert levels == levels_counted(tx)
            assert {cost.org_id: cost.bytes for cost in tally.cost_by_org(tx, 9) if cost.bytes} == bytes_counted(tx)
            states |= {state for _, state, *_ in totals}
    assert states >= {"seen", "done", "quarantined", "open", "live", "superseded"}


def test_a_transaction_that_fails_counts_nothing(database: Database) -> None:
    one = RawObject(ORGS[0], "edge", "logs", "s3://raw", "a", "v", 10)
    try:
        with database.transaction() as tx:
            ledger.record_seen(tx, [one])
            raise KeyError
    except KeyError:
        pass
    with database.transaction() as tx:
        assert tally.count_by_state(tx, "raw_object") == {}


def test_two_commits_do_not_wait_for_each_other(database: Database) -> None:
    """Both change the same counts. A shared row of totals would make the second wait for the first."""
    objects = [RawObject(ORGS[0], "edge", "logs", "s3://raw", name, "v", 10) for name in "ab"]
    with database.transaction() as first, database.transaction() as second:
        second.execute("SET LOCAL lock_timeout = '2s'")
        ledger.record_seen(first, objects[:1])
        ledger.record_seen(second, objects[1:])
    with database.transaction() as tx:
        assert tally.count_by_state(tx, "raw_object") == {"seen": 2}


def test_folding_empties_the_deltas(database: Database) -> None:
    with database.transaction() as tx:
        ledger.record_seen(tx, [RawObject(ORGS[0], "edge", "logs", "s3://raw", name, "v", 10) for name in "abc"])
        assert tally.fold(tx, 100) == 1
        assert tally.fold(tx, 100) == 0
        assert tally.count_by_state(tx, "raw_object") == {"seen": 3}
