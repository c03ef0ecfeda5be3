"""Windows through the stage: what lands in the tiers is the rollup of all raw samples, whenever these came."""

from __future__ import annotations

import random
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakerunner.bus import topics
from lakerunner.index import rollup_windows
from lakerunner.index.commit import Outcome, commit_item
from lakerunner.index.ended_segments import mark_lost
from lakerunner.index.listing import mark_found
from lakerunner.index.overdue import Overdue
from lakerunner.index.segments import live_segments, ref, supersede
from lakerunner.model.signals import METRICS
from lakerunner.model.signals.tiers import ROLLED_TIERS_S, TIER_SAMPLES
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.rollup.roll_up import roll_up
from lakerunner.pipeline.rollup.series import count_series
from lakerunner.pipeline.rollup.stage import ROLLUP
from lakerunner.pipeline.worker import Worker, run_batch
from tests.index.window_states import window_states
from tests.pipeline.lake import Lake, loaded, otlp
from tests.pipeline.rollup.naive import STALE, Histogram, Sample, table_of
from tests.pipeline.rollup.test_roll_up import same
from tests.pipeline.rollup.tier_lake import ALWAYS, DAY_MS, HOUR_MS, ORG, add, item_of, roll_up_all, runner, tier_rows


def day_of_samples(seed: int) -> list[Sample]:
    draw = random.Random(seed)
    found: list[Sample] = []
    for tid in range(6):
        time, value = DAY_MS + draw.randrange(1, 60_000), 0.0
        while time <= DAY_MS + 24 * HOUR_MS:
            value = 0.0 if draw.random() < 0.02 else value + draw.randrange(5)
            kind = STALE if draw.random() < 0.03 else value
            if tid == 5 and kind is value:
                kind = Histogram(value, value, positive={1: value})
            found.append(Sample(tid, time, kind))
            time += draw.choice([60_000, 240_000, 600_000, 1_500_000])
    return found + [Sample(7, DAY_MS + hour * HOUR_MS, float(hour)) for hour in range(1, 25)]


def raw_equal(lake: Lake, samples: list[Sample], tier_s: int) -> bool:
    rows = tier_rows(lake, tier_s).select(TIER_SAMPLES.schema().names).cast(TIER_SAMPLES.schema())
    expected = roll_up(table_of(samples), tier_s).replace_schema_metadata(None)
    return same(rows.replace_schema_metadata(None).combine_chunks(), expected)


def test_all_tiers_hold_the_rollup_of_all_samples(lake: Lake) -> None:
    samples = day_of_samples(1)
    shuffled = samples[:]
    random.Random(2).shuffle(shuffled)
    for number, collector in enumerate(("a", "b", "a", "c")):
        # A sample that two collectors sent is one sample.
        add(lake, shuffled[number::4] + shuffled[:20] if number else shuffled[0::4], collector=collector)
    assert roll_up_all(lake) == 24 + 24 + 1 + 1
    for tier_s in ROLLED_TIERS_S:
        assert raw_equal(lake, samples, tier_s), tier_s
    counted = count_series([tier_rows(lake, 86_400, table=1)])
    assert {name: round(count) for name, count in counted.items()} == {
        "metric_0": 2, "metric_1": 2, "metric_2": 2, "metric_3": 1,
    }  # fmt: skip


def test_small_pieces_and_many_segments_change_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.pipeline.rollup.merge._MIN_BATCH_ROWS", 3)
    pipeline = lake.settings.pipeline.model_copy(update={"rollup_piece_rows": 10, "rollup_segment_rows": 16})
    lake.settings = lake.settings.model_copy(update={"pipeline": pipeline})
    samples = [sample for sample in day_of_samples(3) if sample.time <= DAY_MS + 3 * HOUR_MS]
    for part in range(5):
        add(lake, samples[part::5])
    roll_up_all(lake)
    for tier_s in ROLLED_TIERS_S:
        assert raw_equal(lake, samples, tier_s), tier_s


def test_late_rows_make_their_windows_again(lake: Lake) -> None:
    samples = [sample for sample in day_of_samples(4) if sample.time <= DAY_MS + 4 * HOUR_MS]
    early = [sample for sample in samples if sample.tid != 3]
    add(lake, early)
    roll_up_all(lake)
    assert raw_equal(lake, early, 60)
    late = [s for s in samples if s.tid == 3 and DAY_MS < s.time <= DAY_MS + 2 * HOUR_MS]
    add(lake, late)
    # Two hours of two tiers, and the two tiers of the day.
    assert roll_up_all(lake) == 6
    for tier_s in ROLLED_TIERS_S:
        assert raw_equal(lake, early + late, tier_s), tier_s
    assert roll_up_all(lake) == 0


def test_a_lost_segment_of_a_tier_is_made_again(lake: Lake) -> None:
    samples = [sample for sample in day_of_samples(5) if sample.time <= DAY_MS + 2 * HOUR_MS]
    add(lake, samples)
    roll_up_all(lake)
    with lake.database.transaction() as tx:
        lost = live_segments(tx, ORG, "metrics", ALWAYS, 60)[0]
        assert mark_lost(tx, lost, ["its object"])
    assert not raw_equal(lake, samples, 60)
    assert roll_up_all(lake) > 0
    assert raw_equal(lake, samples, 60)
    with lake.database.transaction() as tx:
        # Its objects are back, but another segment has its rows by now.
        mark_found(tx, [lost])
    assert raw_equal(lake, samples, 60)


def test_the_older_segment_wins(lake: Lake) -> None:
    add(lake, [Sample(1, DAY_MS + 5, 1.0)])
    add(lake, [Sample(1, DAY_MS + 5, 2.0), Sample(1, DAY_MS + 6, 3.0)])
    roll_up_all(lake)
    assert raw_equal(lake, [Sample(1, DAY_MS + 5, 1.0), Sample(1, DAY_MS + 6, 3.0)], 60)


def test_rows_that_come_during_a_rollup_make_it_stale(lake: Lake) -> None:
    add(lake, [Sample(1, DAY_MS + 5, 1.0)])
    with lake.database.transaction() as tx:
        windows = [w for w in rollup_windows.due_windows(tx, 0.0) if w.start_ns == DAY_MS * 10**6]
    item = item_of(lake, windows)
    [attempt] = runner(lake).run([item], {item.item_id: 1})
    add(lake, [Sample(1, DAY_MS + 6, 1.0)])
    assert commit_item(lake.database, attempt.result) is Outcome.STALE
    roll_up_all(lake)
    assert raw_equal(lake, [Sample(1, DAY_MS + 5, 1.0), Sample(1, DAY_MS + 6, 1.0)], 60)


def test_a_compaction_of_the_same_segments_does_not_make_it_stale(lake: Lake) -> None:
    raw = add(lake, [Sample(1, DAY_MS + 5, 1.0)])
    with lake.database.transaction() as tx:
        windows = [w for w in rollup_windows.due_windows(tx, 0.0) if w.start_ns == DAY_MS * 10**6]
    item = item_of(lake, windows)
    [attempt] = runner(lake).run([item], {item.item_id: 1})
    with lake.database.transaction() as tx:
        supersede(tx, [ref(raw)], uuid.uuid4())
    assert commit_item(lake.database, attempt.result) is Outcome.COMMITTED
    assert raw_equal(lake, [Sample(1, DAY_MS + 5, 1.0)], 60)


def test_a_day_whose_hours_changed_waits(lake: Lake) -> None:
    add(lake, [Sample(1, DAY_MS + 5, 1.0)])
    roll_up_all(lake)
    add(lake, [Sample(1, DAY_MS + 6, 1.0)])
    with lake.database.transaction() as tx:
        states = window_states(tx, ORG, ALWAYS)
        day = [rollup_windows.Window(ORG, s.tier_s, s.start_ns, s.end_ns) for s in states if s.tier_s == 3_600]
    item = item_of(lake, day)
    run_batch(ROLLUP, lake.database, runner(lake), [item], {item.item_id: 1})
    assert lake.value("SELECT state FROM work_item WHERE item_id = %s", [item.item_id]) == "stale"
    roll_up_all(lake)
    assert raw_equal(lake, [Sample(1, DAY_MS + 5, 1.0), Sample(1, DAY_MS + 6, 1.0)], 3_600)


def test_through_the_bus(lake: Lake) -> None:
    """Reconciliation announces what is due, the boxer makes items, the worker does them."""
    pipeline = lake.settings.pipeline.model_copy(update={"rollup_pause_s": 0.05})
    lake.settings = lake.settings.model_copy(update={"pipeline": pipeline})
    add(lake, [Sample(1, DAY_MS + 5, 1.0)])
    assert reconcile(lake.database, [ROLLUP], Overdue(300, 60)).inputs == 1
    lake.relay()
    with lake.consumer("boxer-rollup", topics.made(METRICS, "rollup").name) as consumer:
        boxer = Boxer(ROLLUP, lake.database, consumer, lake.settings.pipeline)
        while _due(lake):
            boxer.step()
    lake.relay()
    with lake.consumer("rollup", topics.work(METRICS, "rollup").name) as consumer:
        worker = Worker(ROLLUP, lake.database, consumer, lake.settings.pipeline, runner(lake), 3)
        _drain(lake, worker)
    # The day is closed, so that all its tiers are made in one item, each as one window.
    assert lake.value("SELECT count(*) FROM work_item") == 1
    assert lake.value("SELECT count(*) FROM rollup_window WHERE NOT dirty AND settled = (tier_s <= 300)") == 4
    assert lake.value("SELECT count(*) FROM rollup_window") == 4
    for tier_s in ROLLED_TIERS_S:
        assert raw_equal(lake, [Sample(1, DAY_MS + 5, 1.0)], tier_s)
    assert reconcile(lake.database, [ROLLUP], Overdue(300, 60)).inputs == 0


def _due(lake: Lake) -> int:
    with lake.database.transaction() as tx:
        return len(rollup_windows.due_windows(tx, 0.0))


def _drain(lake: Lake, worker: Worker[rollup_windows.Window]) -> None:
    with ThreadPoolExecutor(2) as pool:
        while lake.value("SELECT count(*) FROM work_item WHERE state = 'open'"):
            worker.step(pool)


def test_orgs_are_rolled_up_apart(lake: Lake) -> None:
    other = uuid.UUID(int=8)
    add(lake, [Sample(1, DAY_MS + 5, 1.0)])
    add(lake, [Sample(1, DAY_MS + 5, 2.0)], org_id=other)
    roll_up_all(lake)
    assert tier_rows(lake, 60).column("value").to_pylist() == [1.0]
    assert tier_rows(lake, 60, org_id=other).column("value").to_pylist() == [2.0]


def test_ingest_marks_the_windows_of_its_rows(lake: Lake) -> None:
    item = loaded(lake, lake.put(METRICS, otlp(METRICS, 8)))
    ingest = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])
    assert run_batch(INGEST, lake.database, ingest, [item], {item.item_id: 1}) == {item.item_id: None}
    ranges = [segment.time_range for segment in lake.segments(METRICS)]
    with lake.database.transaction() as tx:
        states = [state for each in ranges for state in window_states(tx, ORG, each)]
    assert {state.tier_s for state in states if state.dirty} == set(ROLLED_TIERS_S)
