"""Compaction through the real index and bucket: rows stay, segments become few, and every item has one effect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lakerunner.bus.announce import segments_made
from lakerunner.index import outbox
from lakerunner.index.overdue import Overdue
from lakerunner.model.errors import Unavailable
from lakerunner.model.ids import fresh_id
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, SIGNALS
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.compact.task import CompactResult, CompactTask, run_task
from lakerunner.pipeline.items import make_items
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.spark.job import run_tasks
from lakerunner.pipeline.worker import run_batch
from lakerunner.store.errors import StoreUnavailable
from tests.pipeline.compact.small_lake import (
    compact_items,
    compact_until_settled,
    ingest,
    item_of,
    load,
    stored,
)
from tests.pipeline.lake import Lake, identities, otlp

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lines(count: int, service: str = "cart", hour: str = "10", **more: object) -> bytes:
    rows = [
        {"ts": f"2026-11-10T{hour}:00:{n % 60:02d}Z", "service": service, "message": f"line {n}", **more}
        for n in range(count)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


def states(lake: Lake) -> dict[str, int]:
    with lake.database.transaction() as tx:
        rows = tx.execute("SELECT state, count(*) AS n FROM segment GROUP BY state").fetchall()
    return {row["state"]: row["n"] for row in rows}


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_rows_of_all_inputs_are_in_the_output(lake: Lake, signal: Signal) -> None:
    for seed in range(3):
        ingest(lake, lake.put(signal, otlp(signal, 200, seed=seed + 1)))
    before = lake.rows(signal)
    inputs = lake.segments(signal)
    assert compact_until_settled(lake, signal) == 1
    (made,) = lake.segments(signal)
    assert made.level == 1
    assert made.row_count == before.num_rows == sum(each.row_count for each in inputs)
    assert identities(lake.rows(signal), signal) == identities(before, signal)
    assert states(lake) == {"live": 1, "superseded": 3}
    last = outbox.pending(lake.database, 100)[-1].message
    assert last == segments_made([made], ["compact"])[0], "announced for the next level"


def test_tasks_run_on_spark(lake: Lake, spark: SparkSession) -> None:
    items = []
    for signal in SIGNALS:
        for seed in range(2):
            ingest(lake, lake.put(signal, otlp(signal, 40, seed=seed + 1)))
        items.append(item_of(lake, lake.segments(signal)))
    runner = CompactRunner(lake.settings, lake.database, partial(run_tasks, spark, "compact", run_task))
    ends = run_batch(COMPACT, lake.database, runner, items, {item.item_id: 1 for item in items})
    assert ends == {item.item_id: None for item in items}
    assert [len(lake.segments(signal)) for signal in SIGNALS] == [1, 1, 1]
    paths = [str(lake.path(lake.segments(signal)[0])) for signal in SIGNALS]
    counts = [spark.read.parquet(path).count() for path in paths]
    assert counts == [lake.segments(signal)[0].row_count for signal in SIGNALS]


def test_a_task_that_dies_fails_its_own_item_only(lake: Lake) -> None:
    for signal in SIGNALS[:2]:
        for seed in range(2):
            ingest(lake, lake.put(signal, otlp(signal, 10, seed=seed + 1)))
    good, bad = (item_of(lake, lake.segments(signal)) for signal in SIGNALS[:2])

    def dying(tasks: Sequence[CompactTask]) -> list[CompactResult]:
        if any(task.item_id == bad.item_id for task in tasks):
            raise Unavailable("cannot finish a Spark job: the task crashed")
        return [run_task(task) for task in tasks]

    runner = CompactRunner(lake.settings, lake.database, dying)
    ends = run_batch(COMPACT, lake.database, runner, [good, bad], {good.item_id: 1, bad.item_id: 1})
    assert ends[good.item_id] is None
    assert isinstance(ends[bad.item_id], Unavailable)


def test_hours_and_orgs_are_not_mixed(lake: Lake) -> None:
    other = fresh_id()
    for _ in range(2):
        for hour in ("10", "11"):
            ingest(lake, lake.put(LOGS, lines(5, hour=hour), f"logs_{fresh_id()}.json"))
        ingest(lake, lake.put(LOGS, lines(5), f"logs_{fresh_id()}.json", org_id=other))
    settings = lake.settings.pipeline.model_copy(update={"compact_day_age_s": 1e9})
    segment = lake.segments(LOGS)[0]
    (item_id,) = make_items(lake.database, COMPACT, [segment], settings)
    item = load(lake, item_id)
    assert {(each.org_id, each.hour) for each in item.inputs} == {(segment.org_id, segment.hour)}
    assert len(item.inputs) == 2
    compact_items(lake, [item])
    # The day is old by default: now all its hours are one window.
    assert compact_until_settled(lake, LOGS) == 1
    assert [each.row_count for each in lake.segments(LOGS)] == [20]
    assert [each.row_count for each in lake.segments(LOGS, other)] == [5, 5]


def test_two_workers_with_one_item_have_one_effect(lake: Lake) -> None:
    for number in range(2):
        ingest(lake, lake.put(LOGS, lines(50, service=f"s{number}"), f"logs_{number}.json"))
    item = item_of(lake, lake.segments(LOGS))
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda _: compact_items(lake, [item]), range(2)))
    assert ends == [{item.item_id: None}] * 2
    assert states(lake) == {"live": 1, "superseded": 2}
    assert lake.row_count(LOGS) == 100


def test_an_item_whose_input_is_superseded_changes_nothing(lake: Lake) -> None:
    for number in range(3):
        ingest(lake, lake.put(LOGS, lines(10, service=f"s{number}"), f"logs_{number}.json"))
    segments = lake.segments(LOGS)
    item = item_of(lake, segments)
    with lake.database.transaction() as tx:
        tx.execute(
            "UPDATE segment SET state = 'superseded', superseded_at = now() WHERE segment_id = %s",
            [segments[0].segment_id],
        )
    assert compact_items(lake, [item]) == {item.item_id: None}
    assert lake.value("SELECT state FROM work_item WHERE item_id = %s", [item.item_id]) == "stale"
    assert states(lake) == {"live": 2, "superseded": 1}
    assert compact_until_settled(lake, LOGS) == 1
    assert lake.row_count(LOGS) == 20


def test_an_unreadable_segment_is_set_aside_and_the_others_are_merged(lake: Lake) -> None:
    for number in range(4):
        ingest(lake, lake.put(LOGS, lines(10, service=f"s{number}"), f"logs_{number}.json"))
    segments = lake.segments(LOGS)
    bad = segments[1]
    path = lake.path(bad)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-100])
    compact_until_settled(lake, LOGS)
    for _ in range(4):
        # Halves of halves: what was split is on the bus.
        opened = "SELECT item_id FROM work_item WHERE state = 'open'"
        with lake.database.transaction() as tx:
            waiting = [row["item_id"] for row in tx.execute(opened).fetchall()]
        compact_items(lake, [load(lake, item_id) for item_id in waiting])
    compact_until_settled(lake, LOGS)
    assert sorted(each.row_count for each in lake.segments(LOGS)) == [10, 30]
    assert bad.segment_id in {each.segment_id for each in lake.segments(LOGS)}


def test_a_lost_message_heals(lake: Lake) -> None:
    for number in range(2):
        ingest(lake, lake.put(LOGS, lines(10, service=f"s{number}"), f"logs_{number}.json"))
    lake.relay()
    with lake.database.transaction() as tx:
        tx.execute("UPDATE segment SET created_at = now() - interval '8 minutes'")
    assert reconcile(lake.database, [COMPACT], Overdue(300.0, 1e9)).inputs == 1
    assert reconcile(lake.database, [COMPACT], Overdue(300.0, 60.0)).inputs == 0


def test_rows_of_an_object_that_was_ingested_twice_are_gone(lake: Lake) -> None:
    """The ledger forgot the object, which came again. Equal lines of another object stay."""
    line = json.dumps({"ts": "2026-11-10T10:00:00Z", "service": "cart", "message": "again"})
    body = f"{line}\n{line}\n".encode() + lines(10)
    raw = lake.put(LOGS, body, "logs_1.json")
    ingest(lake, raw)
    with lake.database.transaction() as tx:
        tx.execute("DELETE FROM raw_object")
    lake.record([raw])
    ingest(lake, raw)
    ingest(lake, lake.put(LOGS, line.encode(), "logs_2.json"))
    assert lake.row_count(LOGS) == 25
    compact_until_settled(lake, LOGS)
    assert lake.row_count(LOGS) == 13
    assert stored(lake, lake.segments(LOGS)[0]).column("message").to_pylist().count("again") == 3


def test_duplicates_go_where_it_is_switched_on(lake: Lake) -> None:
    body = otlp(METRICS, 20)
    for number in range(2):
        ingest(lake, lake.put(METRICS, body, f"metrics_{number}.binpb"))
    once = lake.row_count(METRICS) // 2
    pipeline = lake.settings.pipeline.model_copy(update={"compact_deduplicate": "*/metrics"})
    lake.settings = lake.settings.model_copy(update={"pipeline": pipeline})
    compact_until_settled(lake, METRICS)
    assert lake.row_count(METRICS) == once


def test_many_small_objects_become_one_segment(lake: Lake) -> None:
    for number in range(40):
        ingest(lake, lake.put(LOGS, lines(3, hour=f"{number % 4:02d}", extra=number), f"logs_{number}.json"))
    assert len(lake.segments(LOGS)) == 40
    compact_until_settled(lake, LOGS)
    assert [each.row_count for each in lake.segments(LOGS)] == [120]


def test_a_store_that_refuses_tasks_pauses_the_worker(lake: Lake) -> None:
    """Without the pause, items that wait for the bucket would be tried again at once, and without an end."""
    for seed in (1, 2):
        ingest(lake, lake.put(LOGS, otlp(LOGS, 8, seed=seed)))
    item = item_of(lake, lake.segments(LOGS))
    refused = StoreUnavailable("cannot put: Access Denied", where=lake.settings.store_url)
    runner = CompactRunner(
        lake.settings, lake.database, lambda tasks: [CompactResult(task.item_id, error=refused) for task in tasks]
    )
    assert run_batch(COMPACT, lake.database, runner, [item], {item.item_id: 1}) == {item.item_id: refused}
    assert runner.is_blocked_by(refused) and runner.is_paused()
    with pytest.raises(StoreUnavailable, match="Access Denied"):
        runner.probes()["store"]()
