"""The worker's loop: what it answers, and when; with a fake of the stage behind it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from lakerunner.bus import topics
from lakerunner.index.outbox import Outgoing
from lakerunner.index.work import WorkItem
from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.bundle import bundle_objects, work_ready
from lakerunner.pipeline.ingest import Ended
from lakerunner.pipeline.ingest_worker import DoBatch, IngestWorker
from lakerunner.pipeline.items import IngestItem
from tests.pipeline.lake import ORG, WORK_TOPICS, Lake, otlp

TOPIC = topics.work(LOGS, "ingest").name


def make_item(lake: Lake, seed: int = 0) -> uuid.UUID:
    raw = lake.put(LOGS, otlp(LOGS, 5, seed))
    made = bundle_objects(lake.database, ORG, "logs", [raw.object_id])
    assert made is not None
    lake.relay()
    return made


def behind(lake: Lake) -> int:
    return sum(each.behind for each in lake.bus.lag("ingest"))


def work(lake: Lake, do: DoBatch, until: Callable[[], bool], timeout_s: float = 15.0) -> None:
    with lake.consumer("ingest", *WORK_TOPICS) as consumer, ThreadPoolExecutor(2) as pool:
        worker = IngestWorker(lake.database, consumer, lake.settings.pipeline, do)
        end = monotonic() + timeout_s
        while not until():
            assert monotonic() < end
            worker.step(pool)


def test_a_failed_item_comes_again_and_its_attempt_is_told(lake: Lake) -> None:
    item_id = make_item(lake)
    attempts: list[int] = []

    def do(items: Sequence[IngestItem], told: Mapping[uuid.UUID, int]) -> Sequence[Ended]:
        attempts.append(told[item_id])
        return [Ended(item.item_id, Unavailable("cannot") if len(attempts) < 3 else None) for item in items]

    work(lake, do, lambda: len(attempts) == 3 and behind(lake) == 0)
    assert attempts == [1, 2, 3]


def test_an_item_that_is_refused_goes_to_the_dead_letters(lake: Lake) -> None:
    make_item(lake)
    work(
        lake,
        lambda items, _: [Ended(item.item_id, BadInput("cannot read")) for item in items],
        lambda: lake.topic(topics.dead(TOPIC).name) == 1 and behind(lake) == 0,
    )


def test_a_message_that_comes_twice_is_answered_when_the_item_has_ended(lake: Lake) -> None:
    item_id = make_item(lake)
    release = threading.Event()
    started: list[uuid.UUID] = []

    def do(items: Sequence[IngestItem], _: Mapping[uuid.UUID, int]) -> Sequence[Ended]:
        started.extend(item.item_id for item in items)
        release.wait(10)
        return [Ended(item.item_id) for item in items]

    with lake.consumer("ingest", *WORK_TOPICS) as consumer, ThreadPoolExecutor(2) as pool:
        worker = IngestWorker(lake.database, consumer, lake.settings.pipeline, do)
        while not started:
            worker.step(pool)
        lake.bus.publish([work_ready(WorkItem(item_id, "ingest", ORG, "logs"))])
        for _ in range(4):
            worker.step(pool)
        assert started == [item_id]
        assert behind(lake) == 2, "neither may be passed while the item is under way"
        release.set()
        end = monotonic() + 10
        while behind(lake):
            assert monotonic() < end
            worker.step(pool)


def test_items_that_ended_or_were_forgotten_are_passed_over(lake: Lake) -> None:
    make_item(lake)
    with lake.database.transaction() as tx:
        tx.execute("UPDATE work_item SET state = 'stale'")
    unknown = WorkItem(uuid.uuid4(), "ingest", ORG, "logs")
    lake.bus.publish([work_ready(unknown), Outgoing(TOPIC, "k", b"{}")])

    def never(*_: object) -> Sequence[Ended]:
        raise AssertionError("nothing is to be done")

    work(lake, never, lambda: behind(lake) == 0 and lake.topic(topics.dead(TOPIC).name) == 1)


def test_several_jobs_are_under_way_and_one_holds_many_items(lake: Lake) -> None:
    ids = {make_item(lake, seed) for seed in range(6)}
    together = threading.Barrier(2, timeout=10)
    batches: list[int] = []
    settings = lake.settings.pipeline.model_copy(update={"batch_items": 3, "jobs": 2})
    done: set[uuid.UUID] = set()

    def do(items: Sequence[IngestItem], _: Mapping[uuid.UUID, int]) -> Sequence[Ended]:
        batches.append(len(items))
        together.wait()
        done.update(item.item_id for item in items)
        return [Ended(item.item_id) for item in items]

    with lake.consumer("ingest", *WORK_TOPICS) as consumer, ThreadPoolExecutor(2) as pool:
        worker = IngestWorker(lake.database, consumer, settings, do)
        end = monotonic() + 15
        while done != ids or behind(lake):
            assert monotonic() < end
            worker.step(pool)
    assert batches == [3, 3]


def test_nothing_is_begun_while_the_bucket_is_down(lake: Lake) -> None:
    make_item(lake)
    attempts: list[int] = []
    is_down = True

    def do(items: Sequence[IngestItem], told: Mapping[uuid.UUID, int]) -> Sequence[Ended]:
        attempts.extend(told.values())
        return [Ended(item.item_id) for item in items]

    with lake.consumer("ingest", *WORK_TOPICS) as consumer, ThreadPoolExecutor(2) as pool:
        worker = IngestWorker(lake.database, consumer, lake.settings.pipeline, do, lambda: is_down)
        for _ in range(10):
            worker.step(pool)
        assert attempts == []
        is_down = False
        end = monotonic() + 15
        while behind(lake):
            assert monotonic() < end
            worker.step(pool)
    assert attempts == [1], "the outage used no attempt up"
