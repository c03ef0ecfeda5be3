"""Windows of rollups: dirty with every change of rows, clean only for the generation that was read."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import pytest

from lakerunner.index import rollup_windows as windows
from lakerunner.index.backlog import tier_lag
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.segments import live_segments
from lakerunner.index.work import WorkItem, create_item
from lakerunner.model.ids import fresh_id
from lakerunner.model.rollup_window import Window
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, TimeRange
from tests.index.window_states import WindowState, window_states

ORG = uuid.UUID(int=7)
#: Midnight three days ago: all windows of that day are over.
DAY_NS = (time.time_ns() // NS_PER_DAY - 3) * NS_PER_DAY
ROWS = TimeRange(DAY_NS + NS_PER_HOUR + NS_PER_MS, DAY_NS + 2 * NS_PER_HOUR)


def mark(database: Database, *ranges: TimeRange, org_id: uuid.UUID = ORG) -> None:
    with database.transaction() as tx:
        windows.mark_dirty(tx, org_id, ranges)


def states(database: Database, rows: TimeRange = ROWS) -> list[WindowState]:
    with database.transaction() as tx:
        return window_states(tx, ORG, rows)


def take(database: Database, tier_s: int, start_ns: int) -> tuple[uuid.UUID, Window]:
    """A work item that has one window."""
    item_id = uuid.uuid4()
    with database.transaction() as tx:
        create_item(tx, WorkItem(item_id, "rollup", ORG, "metrics"))
        [window] = windows.lock_free(tx, [Window(ORG, tier_s, start_ns, 0)])
        windows.bind_windows(tx, [window], item_id)
    return item_id, window


def make(database: Database, tier_s: int, start_ns: int) -> Segment:
    item_id, window = take(database, tier_s, start_ns)
    made = tier_segment(window)
    assert commit_item(database, ItemResult(item_id, made=[made], windows=[window])) is Outcome.COMMITTED
    return made


def tier_segment(window: Window) -> Segment:
    rows = TimeRange(window.start_ns + NS_PER_MS, window.end_ns + NS_PER_MS)
    return Segment(fresh_id(), ORG, "rollup", "metrics", rows, 1, 1, tier_s=window.tier_s)


def live(database: Database, tier_s: int) -> list[uuid.UUID]:
    with database.transaction() as tx:
        return [s.segment_id for s in live_segments(tx, ORG, "metrics", TimeRange(0, 1 << 62), tier_s)]


def test_a_day_gets_all_its_windows_with_its_first_row(database: Database) -> None:
    mark(database, ROWS)
    day = states(database, TimeRange(DAY_NS + NS_PER_MS, DAY_NS + NS_PER_DAY))
    assert [(state.tier_s, state.dirty) for state in day].count((60, True)) == 24
    assert len(day) == 24 + 24 + 1 + 1


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "hours"), [(1, 1, [1]), (0, 0, [0]), (0, 1, [0, 1]), (1, 3_600_000, [1]), (-5, 0, [0])]
)
def test_rows_at_the_full_hour_belong_to_the_hour_before(
    database: Database, first_ms: int, last_ms: int, hours: list[int]
) -> None:
    mark(database, ROWS)
    for hour in range(24):
        make(database, 300, DAY_NS + hour * NS_PER_HOUR)
    at = DAY_NS + NS_PER_HOUR
    mark(database, TimeRange(at + first_ms * NS_PER_MS, at + (last_ms + 1) * NS_PER_MS))
    day = states(database, TimeRange(DAY_NS + NS_PER_MS, DAY_NS + NS_PER_DAY))
    dirty = [(s.start_ns - DAY_NS) // NS_PER_HOUR for s in day if s.tier_s == 300 and s.dirty]
    assert dirty == hours


def test_a_rollup_is_stale_when_rows_came_meanwhile(database: Database) -> None:
    mark(database, ROWS)
    former = make(database, 60, DAY_NS)
    mark(database, TimeRange(DAY_NS + NS_PER_MS, DAY_NS + 2 * NS_PER_MS))
    item_id, window = take(database, 60, DAY_NS)
    mark(database, TimeRange(DAY_NS + NS_PER_MS, DAY_NS + 2 * NS_PER_MS))
    late = ItemResult(item_id, made=[tier_segment(window)], windows=[window])
    assert commit_item(database, late) is Outcome.STALE
    assert live(database, 60) == [former.segment_id]
    # The window is free again, and the next rollup replaces the former segments.
    assert live(database, 60) != [make(database, 60, DAY_NS).segment_id] != [former.segment_id]
    assert len(live(database, 60)) == 1


def test_of_two_workers_with_one_window_one_wins(database: Database) -> None:
    mark(database, ROWS)
    item_id, window = take(database, 60, DAY_NS)
    results = [ItemResult(item_id, made=[tier_segment(window)], windows=[window]) for _ in range(2)]
    assert [commit_item(database, each) for each in results] == [Outcome.COMMITTED, Outcome.ALREADY]
    assert live(database, 60) == [results[0].made[0].segment_id]


def test_a_window_is_taken_once(database: Database) -> None:
    mark(database, ROWS)
    take(database, 60, DAY_NS)
    with database.transaction() as tx:
        assert windows.lock_free(tx, [Window(ORG, 60, DAY_NS, 0)]) == []
        assert (60, DAY_NS) not in {(w.tier_s, w.start_ns) for w in windows.due_windows(tx, 0.0)}


def test_a_day_waits_for_its_hours(database: Database) -> None:
    mark(database, ROWS)
    with database.transaction() as tx:
        assert {window.tier_s for window in windows.due_windows(tx, 0.0)} == {60, 300}
        assert {window.tier_s for window in windows.due_windows(tx, 3_600.0)} == set()
    for hour in range(24):
        make(database, 300, DAY_NS + hour * NS_PER_HOUR)
    with database.transaction() as tx:
        assert {window.tier_s for window in windows.due_windows(tx, 0.0)} == {60, 3_600, 86_400}
        assert windows.read_generations(tx, [Window(ORG, 3_600, DAY_NS, DAY_NS + NS_PER_DAY)])[1]
    mark(database, ROWS)
    with database.transaction() as tx:
        assert not windows.read_generations(tx, [Window(ORG, 3_600, DAY_NS, DAY_NS + NS_PER_DAY)])[1]


def test_what_is_not_over_is_not_due(database: Database) -> None:
    now_ns = time.time_ns()
    mark(database, TimeRange(now_ns, now_ns + NS_PER_MS))
    with database.transaction() as tx:
        due = windows.due_windows(tx, 0.0)
    assert all(window.end_ns < now_ns for window in due)
    assert not any(window.tier_s > 300 and window.end_ns > now_ns for window in due)


def test_a_wide_range_touches_only_windows_that_exist(database: Database) -> None:
    mark(database, TimeRange(0, DAY_NS))
    assert states(database, TimeRange(1, DAY_NS)) == []
    mark(database, ROWS)
    make(database, 60, DAY_NS)
    mark(database, TimeRange(0, DAY_NS + NS_PER_DAY))
    assert all(state.dirty for state in states(database))


def test_sealed_windows_stay_as_they_are(database: Database) -> None:
    mark(database, ROWS)
    make(database, 60, DAY_NS + NS_PER_HOUR)
    with database.transaction() as tx:
        windows.seal(tx, ORG, 0, DAY_NS + NS_PER_DAY)
    mark(database, ROWS)
    [state] = [state for state in states(database) if state.tier_s == 60]
    assert state.sealed and not state.dirty
    with database.transaction() as tx:
        # Coarser tiers are made of the 300 s tier, which is still there.
        assert {window.tier_s for window in windows.due_windows(tx, 0.0)} == {3_600, 86_400}


def test_windows_of_an_expired_tier_are_forgotten(database: Database) -> None:
    mark(database, ROWS)
    for hour in (0, 1, 3):
        make(database, 60, DAY_NS + hour * NS_PER_HOUR)
    with database.transaction() as tx:
        assert {each.tier_s: each.windows for each in tier_lag(tx)}[60] == 21
        assert windows.forget_windows(tx, ORG, 60, DAY_NS + NS_PER_DAY, 100) == 24


def test_orgs_do_not_touch_each_other(database: Database) -> None:
    mark(database, ROWS)
    segment = make(database, 60, DAY_NS)
    mark(database, ROWS, org_id=uuid.UUID(int=8))
    assert live(database, 60) == [segment.segment_id]
    with database.transaction() as tx:
        clean = [s for s in window_states(tx, ORG, TimeRange(DAY_NS + 1, DAY_NS + 2 * NS_PER_MS)) if not s.dirty]
    assert [state.tier_s for state in clean] == [60]


def test_ingest_marks_and_other_stages_do_not(database: Database) -> None:
    raw = Segment(fresh_id(), ORG, "c", "metrics", ROWS, 1, 1)
    with database.transaction() as tx:
        windows.mark_inserted(tx, [replace(raw, signal="logs"), replace(raw, tier_s=60), replace(raw, level=1)])
    assert states(database) == []
    with database.transaction() as tx:
        windows.mark_inserted(tx, [raw])
    assert len(states(database)) == 4


def test_windows_wait_while_rows_are_deleted(database: Database) -> None:
    mark(database, ROWS)
    with database.transaction() as tx:
        tx.execute(
            "INSERT INTO deletion (deletion_id, org_id, signal, selector, condition, start_ns, end_ns, state,"
            " created_by, begins_at) VALUES (%s, %s, 'metrics', '{}', '{}', %s, %s, 'pending', 'me', now())",
            [uuid.uuid4(), ORG, ROWS.start_ns, ROWS.end_ns],
        )
    hour = Window(ORG, 60, DAY_NS + NS_PER_HOUR, DAY_NS + 2 * NS_PER_HOUR)
    with database.transaction() as tx:
        assert hour.start_ns not in {window.start_ns for window in windows.due_windows(tx, 0.0)}
        assert not windows.read_generations(tx, [hour])[1]
        tx.execute("UPDATE deletion SET state = 'done', ended_at = now()")
        assert hour.start_ns in {window.start_ns for window in windows.due_windows(tx, 0.0)}
        assert windows.read_generations(tx, [hour])[1]
