"""What becomes of items when tasks fail, die or report nonsense; without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakerunner.index.series_key import series_key
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner, RunTasks
from lakerunner.pipeline.ingest.task import IngestTask, TaskResult, open_source, run_task
from lakerunner.pipeline.items import load_items, make_item
from lakerunner.pipeline.stage import Item
from lakerunner.pipeline.worker import run_batch
from lakerunner.store.config import StoreConfig
from tests.pipeline.lake import ORG, Lake, otlp

LAST = 3


def here(tasks: Sequence[IngestTask]) -> list[TaskResult]:
    return [run_task(task) for task in tasks]


def dies_over(part: str) -> RunTasks:
    """As Spark does: the job fails whole when one of its tasks dies."""

    def run(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        if any(part in raw.key for task in tasks for raw in task.objects):
            raise Unavailable("cannot finish a Spark job: worker exited unexpectedly (crashed)")
        return here(tasks)

    return run


def item_of(lake: Lake, *names: str) -> Item[RawObject]:
    return loaded(lake, [lake.put(LOGS, otlp(LOGS, 10, seed), name) for seed, name in enumerate(names)])


def loaded(lake: Lake, raws: Sequence[RawObject]) -> Item[RawObject]:
    made = make_item(lake.database, INGEST, raws)
    assert made is not None
    with lake.database.transaction() as tx:
        items, _ = load_items(tx, INGEST, [made], lake.settings.pipeline)
    return items[made]


def do(lake: Lake, items: Sequence[Item[RawObject]], run: RunTasks, attempt: int = 1) -> list[LakeError | None]:
    """How each item ended, in their order."""
    runner = IngestRunner(lake.settings, lake.database, run)
    ends = run_batch("ingest", lake.database, runner, items, {item.item_id: attempt for item in items})
    return [ends[item.item_id] for item in items]


def test_an_item_that_kills_its_task_does_not_hold_up_the_others(lake: Lake) -> None:
    good, bad = item_of(lake, "logs_good.binpb"), item_of(lake, "logs_deadly.binpb", "logs_beside.binpb")
    first, second = do(lake, [good, bad], dies_over("deadly"))
    assert first is None
    assert isinstance(second, Unavailable)
    assert lake.states() == {"done": 1, "bundled": 2}


def test_at_the_last_attempt_only_the_deadly_object_is_quarantined(lake: Lake) -> None:
    item = item_of(lake, "logs_a.binpb", "logs_deadly.binpb", "logs_b.binpb")
    [error] = do(lake, [item], dies_over("deadly"), LAST)
    assert error is None
    assert lake.states() == {"done": 2, "quarantined": 1}
    assert lake.row_count(LOGS) == lake.ledger_rows(LOGS) == 20
    assert "the task that reads it dies" in lake.reasons()["logs_deadly.binpb"]


def test_when_even_an_empty_task_dies_no_object_is_to_blame(lake: Lake) -> None:
    item = item_of(lake, "logs_a.binpb")

    def broken(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        raise Unavailable("cannot finish a Spark job: no executors")

    [error] = do(lake, [item], broken, LAST)
    assert isinstance(error, Unavailable)
    assert lake.states() == {"bundled": 1}


def test_an_error_of_ours_is_the_items_and_quarantines_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(lake, "logs_a.binpb")
    monkeypatch.setattr("lakerunner.pipeline.ingest.task.merged", lambda *_: 1 / 0)
    [error] = do(lake, [item], here, LAST)
    assert error is not None and error.code == "bug" and "ZeroDivisionError" in str(error)
    assert lake.states() == {"bundled": 1}


def test_a_store_that_is_down_quarantines_nothing(lake: Lake) -> None:
    item = item_of(lake, "logs_a.binpb")
    bucket = lake.settings.data.dir / "bucket"
    config = replace(StoreConfig.of(lake.settings), max_attempts=1)
    # Opened while it was there: a disk that is unmounted under a running worker.
    open_source(config)

    def run(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        return here([replace(task, sources=dict.fromkeys(task.sources, config)) for task in tasks])

    runner = IngestRunner(lake.settings, lake.database, run)
    bucket.rename(bucket.with_name("elsewhere"))
    error = run_batch("ingest", lake.database, runner, [item], {item.item_id: 1})[item.item_id]
    assert isinstance(error, LakeError) and error.retryable
    assert lake.states() == {"bundled": 1}
    bucket.with_name("elsewhere").rename(bucket)
    [error] = do(lake, [item], here)
    assert error is None and lake.states() == {"done": 1}


def test_tasks_carry_the_key_of_series_ids(lake: Lake) -> None:
    sent: list[IngestTask] = []

    def run(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        sent.extend(tasks)
        return here(tasks)

    assert do(lake, [item_of(lake, "logs_a.binpb")], run) == [None]
    with lake.database.transaction() as tx:
        key = series_key(tx)
    assert [task.options.metrics.series_key for task in sent] == [key]
    assert len(key) == 32 and key.hex() not in repr(sent)


def test_tasks_that_do_not_report_every_object_commit_nothing(lake: Lake) -> None:
    item = item_of(lake, "logs_a.binpb", "logs_b.binpb")

    def forgetful(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        return [replace(result, objects=result.objects[:1]) for result in here(tasks)]

    [error] = do(lake, [item], forgetful)
    assert error is not None and error.code == "bug"
    assert lake.states() == {"bundled": 2} and lake.segments(LOGS) == []


def test_an_item_is_shared_by_several_tasks_when_it_is_large(lake: Lake) -> None:
    item = item_of(lake, *(f"logs_{number}.binpb" for number in range(6)))
    seen: list[int] = []

    def counting(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        seen.extend(len(task.objects) for task in tasks)
        return here(tasks)

    small = lake.settings.pipeline.model_copy(update={"task_bytes": item.weight // 3 + 1})
    lake.settings = lake.settings.model_copy(update={"pipeline": small})
    [error] = do(lake, [item], counting)
    assert error is None
    assert seen == [2, 2, 2]
    assert len(lake.segments(LOGS)) == 3 and lake.row_count(LOGS) == 60


def test_rows_beyond_one_hour_become_segments_of_their_own(lake: Lake) -> None:
    lines = "\n".join(
        f'{{"timestamp": "2026-11-15T{hour:02d}:59:59.999999999Z", "message": "m{hour}"}}' for hour in range(5)
    )
    [error] = do(lake, [loaded(lake, [lake.put(LOGS, lines.encode(), "logs_hours.json")])], here)
    assert error is None
    assert [segment.hour for segment in lake.segments(LOGS)] == [0, 1, 2, 3, 4]
    assert all(lake.path(segment).exists() for segment in lake.segments(LOGS))


def test_outcomes_are_told_for_every_object(lake: Lake) -> None:
    item = item_of(lake, "logs_a.binpb", "logs_b.binpb")
    config = StoreConfig.of(lake.settings)
    task = IngestTask(
        item.item_id, ORG, "c", "logs", item.inputs, {own_bucket(lake.settings): config}, config, fetches=1
    )
    result = run_task(task)
    assert [type(outcome) for outcome in result.objects] == [ObjectOutcome, ObjectOutcome]
    assert [outcome.row_count for outcome in result.objects] == [10, 10]
    assert sum(segment.row_count for segment in result.segments) == 20
