"""What becomes of items when tasks fail, die or report nonsense; without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from prometheus_client import REGISTRY

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.attributes import OVERFLOW
from lakerunner.index.attribute_types import record_types
from lakerunner.index.row_reports import ReportCount, count_reports, list_reports
from lakerunner.index.series_key import series_key
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.row_report import Effect, RowReport, Sample
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.executor_task import open_for_tasks
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner, RunTasks
from lakerunner.pipeline.ingest.task import IngestTask, TaskResult, run_task
from lakerunner.pipeline.items import load_items
from lakerunner.pipeline.split import Tables, merged
from lakerunner.pipeline.stage import Item
from lakerunner.pipeline.worker import run_batch
from lakerunner.store.bucket import ObjectMeta
from lakerunner.store.config import StoreConfig
from lakerunner.store.errors import Refused, StoreUnavailable
from lakerunner.store.folder import FolderBucket
from tests.pipeline.lake import ORG, Lake, loaded, otlp

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
    return loaded(lake, *(lake.put(LOGS, otlp(LOGS, 10, seed), name) for seed, name in enumerate(names)))


def do(lake: Lake, items: Sequence[Item[RawObject]], run: RunTasks, attempt: int = 1) -> list[LakeError | None]:
    """How each item ended, in their order."""
    runner = IngestRunner(lake.settings, lake.database, run)
    ends = run_batch(INGEST, lake.database, runner, items, {item.item_id: attempt for item in items})
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


def open_items(lake: Lake) -> list[Item[RawObject]]:
    with lake.database.transaction() as tx:
        ids = [row["item_id"] for row in tx.execute("SELECT item_id FROM work_item WHERE state = 'open'").fetchall()]
        return list(load_items(tx, INGEST, ids, lake.settings.pipeline)[0].values())


def do_all(lake: Lake, run: RunTasks, attempt: int = 1) -> int:
    """Do open items until there are none; return how many rounds that took."""
    rounds = 0
    while items := open_items(lake):
        assert do(lake, items, run, attempt) == [None] * len(items)
        rounds += 1
    return rounds


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError])
def test_rows_that_cannot_be_written_are_narrowed_down_to_their_object(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    raws = [lake.put(LOGS, otlp(LOGS, 10, seed), f"logs_{seed}.binpb") for seed in range(7)]
    loaded(lake, *raws, lake.put(LOGS, otlp(LOGS, 11), "logs_odd.binpb"))

    def fails_over_eleven(signal: Signal, tables: Sequence[Tables], types: AttributeTypes) -> Tables:
        if sum(table[""].num_rows for table in tables) % 10:
            raise error
        return merged(signal, tables, types)

    monkeypatch.setattr("lakerunner.pipeline.ingest.task.merged", fails_over_eleven)
    assert do_all(lake, here) == 4, "8, 4, 2, 1"
    assert lake.states() == {"done": 7, "quarantined": 1}
    assert lake.row_count(LOGS) == lake.ledger_rows(LOGS) == 70
    assert "cannot ingest the item" in lake.reasons()["logs_odd.binpb"]


def test_an_index_that_refuses_a_value_narrows_down_to_the_object(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the end of a segment at 2**63 did: the commit of the whole bundle failed, every five minutes."""
    item_of(lake, *(f"logs_{number}.binpb" for number in range(7)), "logs_wide.binpb")

    def wide(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        return [
            replace(
                result,
                segments=tuple(
                    replace(each, time_range=TimeRange(each.time_range.start_ns, 1 << 63))
                    if any("wide" in raw.key for raw in task.objects)
                    else each
                    for each in result.segments
                ),
            )
            for task, result in zip(tasks, here(tasks), strict=True)
        ]

    assert do_all(lake, wide) == 4
    assert lake.states() == {"done": 7, "quarantined": 1}
    assert lake.row_count(LOGS) == lake.ledger_rows(LOGS) == 70
    assert "bigint out of range" in lake.reasons()["logs_wide.binpb"]


def test_a_store_that_is_down_quarantines_nothing(lake: Lake) -> None:
    item = item_of(lake, "logs_a.binpb")
    bucket = lake.settings.data.dir / "bucket"
    config = replace(StoreConfig.of(lake.settings), max_attempts=1)
    # Opened while it was there: a disk that is unmounted under a running worker.
    open_for_tasks(config)

    def run(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        return here([replace(task, sources=dict.fromkeys(task.sources, config)) for task in tasks])

    runner = IngestRunner(lake.settings, lake.database, run)
    bucket.rename(bucket.with_name("elsewhere"))
    error = run_batch(INGEST, lake.database, runner, [item], {item.item_id: 1})[item.item_id]
    assert isinstance(error, LakeError) and error.retryable
    assert lake.states() == {"bundled": 1}
    bucket.with_name("elsewhere").rename(bucket)
    [error] = do(lake, [item], here)
    assert error is None and lake.states() == {"done": 1}


def test_an_object_that_the_store_does_not_give_out_holds_up_no_other(lake: Lake) -> None:
    """Its neighbours land; it waits for the store, and is not quarantined."""
    item_of(lake, "logs_stuck.binpb", *(f"logs_{number}.binpb" for number in range(3)))

    def stuck(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        return [
            TaskResult(task.item_id, error=Unavailable("cannot get the object"))
            if any("stuck" in raw.key for raw in task.objects)
            else run_task(task)
            for task in tasks
        ]

    for _ in range(3):
        do(lake, open_items(lake), stuck, LAST)
    assert lake.states() == {"done": 3, "bundled": 1}
    [alone] = open_items(lake)
    assert [raw.key.endswith("logs_stuck.binpb") for raw in alone.inputs] == [True]
    assert do(lake, [alone], here) == [None]


def test_a_store_that_refuses_all_pauses_and_is_told_by_the_probe(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(lake, "logs_a.binpb", "logs_b.binpb")

    def refuse(*_: object, **__: object) -> bytes:
        raise Refused("cannot get: Access Denied", hint="check the credentials")

    runner = IngestRunner(lake.settings, lake.database, here)
    with monkeypatch.context() as patch:
        patch.setattr(FolderBucket, "get", refuse)
        patch.setattr(FolderBucket, "get_range", refuse)
        ends = run_batch(INGEST, lake.database, runner, [item], {item.item_id: LAST})
    error = ends[item.item_id]
    assert isinstance(error, StoreUnavailable) and runner.is_blocked_by(error)
    assert lake.states() == {"bundled": 2}
    assert runner.is_paused()
    # Listing still works: the probe must tell what the tasks found.
    with pytest.raises(StoreUnavailable, match="Access Denied"):
        runner.probes()["store"]()
    open_for_tasks.cache_clear()
    assert run_batch(INGEST, lake.database, runner, [item], {item.item_id: LAST}) == {item.item_id: None}
    assert lake.states() == {"done": 2}
    runner.probes()["store"]()


def test_an_object_that_is_refused_alone_is_quarantined(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    item = item_of(lake, "logs_a.binpb", "logs_b.binpb")
    get = FolderBucket.get

    def refuse(bucket: FolderBucket, key: str, *, etag: str | None = None) -> bytes:
        if key.endswith("logs_a.binpb"):
            raise Refused("cannot get: Access Denied")
        return get(bucket, key, etag=etag)

    monkeypatch.setattr(FolderBucket, "get", refuse)
    assert do(lake, [item], here) == [None]
    assert lake.states() == {"done": 1, "quarantined": 1}
    assert "Access Denied" in lake.reasons()["logs_a.binpb"]


@pytest.mark.parametrize("by_content", [False, True], ids=["by etag", "by content"])
def test_an_overwrite_between_head_and_get_is_superseded_and_never_read_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, *, by_content: bool
) -> None:
    old = lake.put(LOGS, otlp(LOGS, 10, 1), "logs_a.binpb")
    kept = lake.put(LOGS, otlp(LOGS, 10, 2), "logs_b.binpb")
    if by_content:
        old = replace(old, version=str(lake.store.content_version(old.key, None)))
        lake.record([old])
    head = FolderBucket.head

    def overwritten(bucket: FolderBucket, key: str) -> ObjectMeta:
        meta = head(bucket, key)
        if key == old.key:
            lake.store.put(key, otlp(LOGS, 30, 3), create_only=False)
        return meta

    with monkeypatch.context() as patch:
        patch.setattr(FolderBucket, "head", overwritten)
        assert do(lake, [loaded(lake, old, kept)], here) == [None]
    assert lake.reasons() == {}
    assert lake.ledger_rows(LOGS) == lake.row_count(LOGS) == 10
    new = replace(old, version=str(lake.store.content_version(old.key, None)))
    lake.record([new])
    assert do(lake, [loaded(lake, new)], here) == [None]
    assert lake.ledger_rows(LOGS) == lake.row_count(LOGS) == 40


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
    assert error is None, "the item is split"
    assert lake.states() == {"bundled": 2} and lake.segments(LOGS) == []
    assert [len(half.inputs) for half in open_items(lake)] == [1, 1]


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
    [error] = do(lake, [loaded(lake, lake.put(LOGS, lines.encode(), "logs_hours.json"))], here)
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


def metric(name: str, reason: str) -> float:
    return REGISTRY.get_sample_value(name, {"signal": "logs", "reason": reason}) or 0.0


def test_rows_that_were_not_stored_as_sent_are_reported_with_their_object(lake: Lake) -> None:
    small = lake.settings.formats.model_copy(update={"value_bytes": 4})
    lake.settings = lake.settings.model_copy(update={"formats": small})
    lines = b'{"ts": 1, "message": "0123456789"}\n{"no [/red]\x1b[2J' + b"x" * (1 << 20)
    raw, other = lake.put(LOGS, lines, "logs_a.json"), lake.put(LOGS, b'{"ts": 2, "message": "b"}', "logs_b.json")
    counters = (("lakerunner_rows_rejected_total", "bad_json"), ("lakerunner_rows_changed_total", "value_bytes"))
    before = [metric(*counter) for counter in counters]
    assert do(lake, [loaded(lake, raw, other)], here) == [None]
    assert [metric(*counter) for counter in counters] == [count + 1 for count in before]
    with lake.database.transaction() as tx:
        [found] = list_reports(tx)
        assert list_reports(tx, reason="value_bytes") == [found] and list_reports(tx, reason="no_time") == []
        counts = count_reports(tx)
    assert (found.object_id, found.row_count) == (raw.object_id, 1)
    rejected, changed = found.reports
    assert (rejected.effect, rejected.reason, rejected.rows) == ("rejected", "bad_json", 1)
    assert rejected.samples[0].excerpt.startswith('{"no [/red]\\x1b[2Jxxx') and len(rejected.samples[0].excerpt) <= 160
    assert changed == RowReport(Effect.CHANGED, "value_bytes", 1, (Sample("", "0123"),))
    assert counts == [
        ReportCount("logs", "rejected", "bad_json", 1, 1),
        ReportCount("logs", "changed", "value_bytes", 1, 1),
    ]
    # The ledger forgets a report with its object.
    with lake.database.transaction() as tx:
        tx.execute("DELETE FROM raw_object WHERE object_id = %s", [raw.object_id])
        assert list_reports(tx) == []


def put_line(lake: Lake, name: str, value: str) -> RawObject:
    line = f'{{"ts": "2026-11-15T10:00:00Z", "message": "m", "n": {value}}}'
    return lake.put(LOGS, line.encode(), name)


def column_types(lake: Lake, column: str) -> set[str]:
    return {str(pq.read_schema(lake.file(segment)).field(column).type) for segment in lake.segments(LOGS)}


def test_tasks_that_chose_other_types_run_again(lake: Lake) -> None:
    """Two runners that know nothing of each other, and two tasks of one item."""
    raws = [put_line(lake, f"logs_{number}.json", value) for number, value in enumerate(("1", '"x"', "true", "1.5"))]
    item = loaded(lake, *raws[:2])
    small = lake.settings.pipeline.model_copy(update={"task_bytes": item.weight // 2 + 1})
    lake.settings = lake.settings.model_copy(update={"pipeline": small})
    seen: list[int] = []

    def counting(tasks: Sequence[IngestTask]) -> list[TaskResult]:
        seen.append(len(tasks))
        return here(tasks)

    assert do(lake, [item], counting) == [None]
    assert seen == [2, 2]
    ignorant = IngestRunner(lake.settings, lake.database, here)
    ignorant._types._types[ORG, "logs"] = AttributeTypes()
    for raw in raws[2:]:
        item = loaded(lake, raw)
        assert run_batch(INGEST, lake.database, ignorant, [item], {item.item_id: 1}) == {item.item_id: None}
    assert column_types(lake, "attr_n") == {"double"}
    rows = lake.rows(LOGS)
    assert sorted(filter(None, rows.column("attr_n").to_pylist())) == [1.0, 1.5]
    assert sorted(filter(None, rows.column(OVERFLOW).to_pylist())) == [[("attr_n", "true")], [("attr_n", "x")]]


def test_when_an_org_has_too_many_columns_new_attributes_go_to_the_overflow(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_types, "__defaults__", (1,))
    assert do(lake, [loaded(lake, put_line(lake, "logs_a.json", '1, "k": "v"'))], here) == [None]
    [segment] = lake.segments(LOGS)
    columns = pq.read_schema(lake.file(segment)).names
    assert "attr_k" in columns and "attr_n" not in columns
    assert lake.rows(LOGS).column(OVERFLOW).to_pylist() == [[("attr_n", "1")]]
    long = "k" * 3_000
    assert do(lake, [loaded(lake, put_line(lake, "logs_b.json", f'1, "{long}": "v"'))], here) == [None]
