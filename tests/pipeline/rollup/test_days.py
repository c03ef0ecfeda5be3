"""Closed days: neighbouring windows become one, exactly, and whatever happens to their rows meanwhile."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import pytest

from lakerunner.index import joined_windows, rollup_windows
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.ended_segments import mark_lost
from lakerunner.index.segments import insert_segments, live_segments, ref, supersede
from lakerunner.model.ids import fresh_id
from lakerunner.model.rollup_window import Window, windows_of_day
from lakerunner.model.signals.tiers import ROLLED_TIERS_S
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, TimeRange
from lakerunner.pipeline.rollup.days import Stretch, neighbours, stretches
from lakerunner.pipeline.worker import run_batch
from tests.index.window_states import window_states
from tests.pipeline.lake import Lake
from tests.pipeline.rollup.naive import Sample
from tests.pipeline.rollup.test_rollup_end_to_end import day_of_samples, raw_equal
from tests.pipeline.rollup.tier_lake import (
    ALWAYS,
    DAY_MS,
    HOUR_MS,
    ORG,
    ROLLUP,
    add,
    gathered,
    roll_up_all,
    runner,
    settle_all,
)

DAY_NS = DAY_MS * NS_PER_MS


def hours_made(lake: Lake, hours: int = 6, seed: int = 1) -> list[Sample]:
    """A closed day whose windows were made hour by hour, while it was open."""
    samples = [sample for sample in day_of_samples(seed) if sample.time <= DAY_MS + hours * HOUR_MS]
    add(lake, samples)
    roll_up_all(lake)
    return samples


def joinable(lake: Lake) -> list[Window]:
    with lake.database.transaction() as tx:
        return rollup_windows.joinable_days(tx)


def live(lake: Lake, tier_s: int) -> int:
    with lake.database.transaction() as tx:
        return len(live_segments(tx, ORG, "metrics", ALWAYS, tier_s))


def widths(lake: Lake, tier_s: int) -> list[float]:
    """Of the windows of a tier, in hours."""
    with lake.database.transaction() as tx:
        states = window_states(tx, ORG, TimeRange(DAY_NS + NS_PER_MS, DAY_NS + NS_PER_DAY))
    return [(each.end_ns - each.start_ns) / NS_PER_HOUR for each in states if each.tier_s == tier_s]


def limit_rows(lake: Lake, rows: int) -> None:
    pipeline = lake.settings.pipeline.model_copy(update={"rollup_segment_rows": rows})
    lake.settings = lake.settings.model_copy(update={"pipeline": pipeline})


def same_everywhere(lake: Lake, samples: list[Sample]) -> None:
    for tier_s in ROLLED_TIERS_S:
        assert raw_equal(lake, samples, tier_s), tier_s


def test_neighbours_share_a_run_until_they_have_enough_rows() -> None:
    hours = stretches(window for window in windows_of_day(ORG, 0) if window.tier_s <= 300)
    assert [len(run) for run in neighbours(hours, 0)] == [24]
    for hour in hours:
        hour.rows = 10
    assert [len(run) for run in neighbours(hours, 100)] == [10, 10, 4]
    assert [len(run) for run in neighbours(hours, 5)] == [1] * 24
    del hours[3]
    hours[7] = Stretch(hours[7].start_ns, hours[7].end_ns, [hours[7].windows[0]])
    assert [len(run) for run in neighbours(hours, 1e9)] == [3, 4, 1, 15]


def test_the_hours_of_a_closed_day_become_one_segment_per_tier(lake: Lake) -> None:
    samples = hours_made(lake, 24)
    assert live(lake, 60) == live(lake, 300) == 24
    assert settle_all(lake) == 1
    assert {tier_s: (live(lake, tier_s), widths(lake, tier_s)) for tier_s in ROLLED_TIERS_S} == {
        tier_s: (1, [24.0]) for tier_s in ROLLED_TIERS_S
    }
    same_everywhere(lake, samples)
    # Nothing is done twice.
    assert settle_all(lake) == 0


def test_late_rows_make_the_wide_window_again(lake: Lake) -> None:
    samples = hours_made(lake)
    settle_all(lake)
    late = [Sample(9, DAY_MS + 5 * HOUR_MS + 7, 1.0), Sample(9, DAY_MS + 20 * HOUR_MS, 2.0)]
    add(lake, late)
    assert settle_all(lake) == 1
    assert widths(lake, 60) == widths(lake, 300) == [24.0]
    same_everywhere(lake, samples + late)


def test_many_rows_stay_in_several_windows(lake: Lake) -> None:
    samples = hours_made(lake, 12)
    with lake.database.transaction() as tx:
        rows = sum(each.row_count for each in live_segments(tx, ORG, "metrics", ALWAYS, 60))
    limit_rows(lake, rows // 5)
    settle_all(lake)
    # Two neighbours together have more rows than the limit, or they would be one.
    assert 5 < len(widths(lake, 60)) <= 11
    assert widths(lake, 60) == widths(lake, 300)
    assert sum(widths(lake, 60)) == 24
    same_everywhere(lake, samples)
    assert joinable(lake) == []
    late = [Sample(9, DAY_MS + 5 * HOUR_MS + 7, 1.0)]
    add(lake, late)
    settle_all(lake)
    same_everywhere(lake, samples + late)


def test_a_closed_day_is_made_in_as_few_items_as_its_rows_allow(lake: Lake) -> None:
    samples = day_of_samples(3)
    add(lake, samples)
    limit_rows(lake, len(samples) // 12)
    settle_all(lake)
    assert 3 <= len(widths(lake, 60)) <= 8
    same_everywhere(lake, samples)


def test_rows_that_come_during_a_join_make_it_stale(lake: Lake) -> None:
    samples = hours_made(lake)
    [item] = gathered(lake, joinable(lake))
    [attempt] = runner(lake).run([item], {item.item_id: 1})
    late = [Sample(9, DAY_MS + 5, 1.0)]
    add(lake, late)
    assert isinstance(attempt.result, ItemResult)
    assert commit_item(lake.database, attempt.result) is Outcome.STALE
    assert live(lake, 60) == 6
    settle_all(lake)
    assert live(lake, 60) == 1
    same_everywhere(lake, samples + late)


def test_rows_that_came_before_a_join_ran_set_its_windows_free(lake: Lake) -> None:
    samples = hours_made(lake)
    [item] = gathered(lake, joinable(lake))
    late = [Sample(9, DAY_MS + 5, 1.0)]
    add(lake, late)
    run_batch(ROLLUP, lake.database, runner(lake), [item], {item.item_id: 1})
    assert lake.value("SELECT state FROM work_item WHERE item_id = %s", [item.item_id]) == "stale"
    settle_all(lake)
    same_everywhere(lake, samples + late)


def test_of_two_workers_with_one_join_one_wins(lake: Lake) -> None:
    samples = hours_made(lake)
    [item] = gathered(lake, joinable(lake))
    attempts = [next(iter(runner(lake).run([item], {item.item_id: 1}))) for _ in range(2)]
    outcomes = [commit_item(lake.database, attempt.result) for attempt in attempts]  # type: ignore[arg-type]
    assert outcomes == [Outcome.COMMITTED, Outcome.ALREADY]
    same_everywhere(lake, samples)


def test_a_segment_that_was_replaced_meanwhile_makes_a_join_stale(lake: Lake) -> None:
    """As a deletion replaces a segment of a tier whose raw samples have expired: the window does not change."""
    hours_made(lake)
    [item] = gathered(lake, joinable(lake))
    [attempt] = runner(lake).run([item], {item.item_id: 1})
    assert isinstance(attempt.result, ItemResult)
    with lake.database.transaction() as tx:
        first = live_segments(tx, ORG, "metrics", ALWAYS, 60)[0]
        supersede(tx, [ref(first)], uuid.uuid4())
        insert_segments(tx, [replace(first, segment_id=fresh_id())], uuid.uuid4())
    assert commit_item(lake.database, attempt.result) is Outcome.STALE
    assert live(lake, 60) == 6


def test_sealed_windows_are_joined_among_themselves(lake: Lake) -> None:
    samples = hours_made(lake)
    with lake.database.transaction() as tx:
        rollup_windows.seal(tx, ORG, 0, DAY_NS + 3 * NS_PER_HOUR)
    settle_all(lake)
    assert widths(lake, 60) == [3.0, 21.0]
    same_everywhere(lake, samples)
    with lake.database.transaction() as tx:
        states = window_states(tx, ORG, TimeRange(DAY_NS + NS_PER_MS, DAY_NS + NS_PER_DAY))
    assert [each.sealed for each in states if each.tier_s == 60] == [True, False]


def test_a_window_that_is_sealed_during_a_join_makes_it_stale(lake: Lake) -> None:
    hours_made(lake)
    [item] = gathered(lake, joinable(lake))
    [attempt] = runner(lake).run([item], {item.item_id: 1})
    assert isinstance(attempt.result, ItemResult)
    with lake.database.transaction() as tx:
        rollup_windows.seal(tx, ORG, 0, DAY_NS + 3 * NS_PER_HOUR)
    assert commit_item(lake.database, attempt.result) is Outcome.STALE
    assert len(widths(lake, 60)) == 24


def test_a_lost_segment_is_made_again_before_its_day_is_joined(lake: Lake) -> None:
    samples = hours_made(lake)
    with lake.database.transaction() as tx:
        assert mark_lost(tx, live_segments(tx, ORG, "metrics", ALWAYS, 60)[2], ["its object"])
    assert joinable(lake) == []
    settle_all(lake)
    assert live(lake, 60) == 1
    same_everywhere(lake, samples)


@pytest.mark.parametrize("touch", ["rows", "expiry"])
def test_whoever_touches_windows_waits_for_a_join_and_sees_it(lake: Lake, touch: str) -> None:
    hours_made(lake, 1)
    day = TimeRange(DAY_NS + NS_PER_MS, DAY_NS + NS_PER_DAY)
    hours = [window for window in windows_of_day(ORG, DAY_NS // NS_PER_DAY) if window.tier_s == 60]

    def touched() -> None:
        with lake.database.transaction() as tx:
            if touch == "rows":
                rollup_windows.mark_dirty(tx, ORG, [TimeRange(DAY_NS + 5 * NS_PER_HOUR, DAY_NS + 6 * NS_PER_HOUR)])
            else:
                rollup_windows.share_windows(tx, ORG)
                rollup_windows.seal(tx, ORG, 0, DAY_NS + 6 * NS_PER_HOUR)

    thread = threading.Thread(target=touched)
    with lake.database.transaction() as tx:
        rollup_windows.hold_windows(tx, ORG)
        assert joined_windows.join(tx, [Window(ORG, 60, DAY_NS, DAY_NS + NS_PER_DAY)], hours, settled=True)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join(10)
    with lake.database.transaction() as tx:
        [wide] = [each for each in window_states(tx, ORG, day) if each.tier_s == 60]
    assert wide.dirty if touch == "rows" else wide.sealed


def test_hours_are_not_created_inside_a_wide_window(lake: Lake) -> None:
    hours_made(lake)
    settle_all(lake)
    with lake.database.transaction() as tx:
        # By retention, coarse tiers may go first.
        rollup_windows.forget_windows(tx, ORG, 86_400, DAY_NS + 2 * NS_PER_DAY, 10)
    add(lake, [Sample(9, DAY_MS + 5 * HOUR_MS, 1.0)])
    assert widths(lake, 60) == [24.0]
    assert widths(lake, 86_400) == [24.0]
