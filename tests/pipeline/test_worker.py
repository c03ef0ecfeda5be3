"""The worker's loop: what it answers, and when; with a runner that does as the test says."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Any

import pytest

from lakerunner.bus import topics
from lakerunner.index.commit import ItemResult
from lakerunner.index.outbox import Outgoing
from lakerunner.index.work import WorkItem
from lakerunner.model.errors import BadInput, Bug, Conflict, Unavailable
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.ingest.stage import INGEST
from lakerunner.pipeline.items import make_item, work_ready
from lakerunner.pipeline.stage import Attempt, InputAtFault, Item, Runner
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.settings import PipelineSettings
from lakerunner.runtime.stop import Stop
from tests.pipeline.lake import ORG, WORK_TOPICS, Lake, otlp

#: As the settings of a test's lake have it.
ATTEMPTS = 3
TOPIC = topics.work(LOGS, "ingest").name
Items = Sequence[Item[RawObject]]
Attempts = Mapping[uuid.UUID, int]


class Scripted(Runner[RawObject]):
    def __init__(self, do: Callable[[Items, Attempts], Iterable[Attempt]]) -> None:
        self._do = do
        self.paused = False

    def run(self, items: Items, attempts: Attempts) -> Iterable[Attempt]:
        return self._do(items, attempts)

    def is_paused(self) -> bool:
        return self.paused


def done(item: Item[RawObject]) -> Attempt:
    """The item's objects had no rows."""
    return Attempt(
        item.item_id, ItemResult(item.item_id, objects=[ObjectOutcome(raw.object_id, 0) for raw in item.inputs])
    )


def make(lake: Lake, seed: int = 0) -> uuid.UUID:
    made = make_item(lake.database, INGEST, [lake.put(LOGS, otlp(LOGS, 5, seed))])
    assert made is not None
    lake.relay()
    return made


def behind(lake: Lake) -> int:
    return sum(each.behind for each in lake.bus.lag("ingest"))


def dead_letters(lake: Lake) -> int:
    return lake.topic(topics.dead(TOPIC).name)


class Working:
    """A worker that is stepped until something holds."""

    def __init__(self, worker: Worker[RawObject], pool: ThreadPoolExecutor, consumer: Any) -> None:
        self.worker, self.pool, self.consumer = worker, pool, consumer

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.worker.step(self.pool)

    def until(self, holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
        end = monotonic() + timeout_s
        while not holds():
            assert monotonic() < end
            self.step()


@contextmanager
def working(lake: Lake, runner: Scripted, settings: PipelineSettings | None = None) -> Any:
    with lake.consumer("ingest", *WORK_TOPICS) as consumer, ThreadPoolExecutor(2) as pool:
        worker = Worker(INGEST, lake.database, consumer, settings or lake.settings.pipeline, runner, ATTEMPTS)
        yield Working(worker, pool, consumer)


def work(lake: Lake, do: Callable[[Items, Attempts], Iterable[Attempt]], until: Callable[[], bool]) -> None:
    with working(lake, Scripted(do)) as at_work:
        at_work.until(until)


def test_a_failed_item_comes_again_with_its_attempt_number(lake: Lake) -> None:
    item_id = make(lake)
    seen: list[int] = []

    def do(items: Items, attempts: Attempts) -> Iterable[Attempt]:
        seen.append(attempts[item_id])
        return [Attempt(item_id, Unavailable("cannot")) if len(seen) < 3 else done(items[0])]

    work(lake, do, lambda: len(seen) == 3 and behind(lake) == 0)
    assert seen == [1, 2, 3]
    assert lake.states() == {"done": 1}


def test_an_item_that_is_refused_goes_to_the_dead_letters(lake: Lake) -> None:
    make(lake)
    work(
        lake,
        lambda items, _: [Attempt(item.item_id, BadInput("cannot read")) for item in items],
        lambda: dead_letters(lake) == 1 and behind(lake) == 0,
    )


@pytest.mark.parametrize(
    "error",
    [Unavailable("cannot reach the index"), ZeroDivisionError("a surprise"), MemoryError()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("lazily", [False, True], ids=["raised at once", "raised while results are taken"])
def test_a_batch_that_raises_comes_again_and_is_worked_on(lake: Lake, error: Exception, lazily: bool) -> None:
    """Also when the runner raises before any task ran: no delivery may stay unanswered until a restart."""
    item_id = make(lake)
    calls = 0

    def do(items: Items, _: Attempts) -> Iterable[Attempt]:
        nonlocal calls
        calls += 1
        if calls == 1:
            if not lazily:
                raise error
            return (raised(error) for _ in items)
        return [done(item) for item in items]

    work(lake, do, lambda: calls == 2 and behind(lake) == 0)
    assert lake.states() == {"done": 1}
    # An announcement that comes later meets no dead entry: the item has ended, and is passed over.
    lake.bus.publish([work_ready(WorkItem(item_id, "ingest", ORG, "logs"))])
    work(lake, do, lambda: behind(lake) == 0)
    assert calls == 2 and dead_letters(lake) == 0


def raised(error: Exception) -> Attempt:
    raise error


def test_an_announcement_during_the_failure_is_answered_too(lake: Lake) -> None:
    item_id = make(lake)
    release = threading.Event()
    calls = 0

    def do(items: Items, _: Attempts) -> Iterable[Attempt]:
        nonlocal calls
        calls += 1
        if calls == 1:
            release.wait(10)
            raise Unavailable("cannot reach the index")
        return [done(item) for item in items]

    with working(lake, Scripted(do)) as at_work:
        at_work.until(lambda: calls == 1)
        lake.bus.publish([work_ready(WorkItem(item_id, "ingest", ORG, "logs"))])
        at_work.step(3)
        release.set()
        at_work.until(lambda: behind(lake) == 0)
    assert lake.states() == {"done": 1} and dead_letters(lake) == 0


@pytest.mark.parametrize("error", [BadInput("cannot"), Conflict("cannot")], ids=repr)
def test_one_item_does_not_fail_its_neighbours(lake: Lake, error: Exception) -> None:
    ids = [make(lake, seed) for seed in range(3)]

    def do(items: Items, _: Attempts) -> Iterable[Attempt]:
        if ids[1] in {item.item_id for item in items}:
            raise error
        return [done(item) for item in items]

    work(lake, do, lambda: dead_letters(lake) == 1 and behind(lake) == 0)
    assert lake.states() == {"done": 2, "bundled": 1}


@pytest.mark.parametrize(
    ("error", "attempts"), [(ZeroDivisionError("a surprise"), ATTEMPTS), (InputAtFault("cannot"), 1)], ids=repr
)
def test_an_item_that_fails_again_and_again_is_narrowed_down_to_its_input(
    lake: Lake, error: Exception, attempts: int
) -> None:
    """The item is halved until the input at fault is alone; the others land, on the way or beside it."""
    raws = [lake.put(LOGS, otlp(LOGS, 5, seed)) for seed in range(4)]
    make_item(lake.database, INGEST, raws)
    lake.relay()
    seen: list[int] = []

    def do(items: Items, attempt_of: Attempts) -> Iterable[Attempt]:
        if any(raws[2] in item.inputs for item in items):
            seen.extend(attempt_of.values())
            raise error
        return [done(item) for item in items]

    def ended() -> bool:
        lake.relay()
        return lake.states() == {"done": 3, "quarantined": 1} and behind(lake) == 0

    work(lake, do, ended)
    assert str(error) in next(iter(lake.reasons().values()))
    assert max(seen) == attempts and dead_letters(lake) == 0


def test_an_outage_splits_and_quarantines_nothing(lake: Lake) -> None:
    raws = [lake.put(LOGS, otlp(LOGS, 5, seed)) for seed in range(2)]
    item_id = make_item(lake.database, INGEST, raws)
    lake.relay()
    work(
        lake,
        lambda items, _: [Attempt(item.item_id, Unavailable("cannot reach the bucket")) for item in items],
        lambda: dead_letters(lake) == 1 and behind(lake) == 0,
    )
    assert lake.states() == {"bundled": 2}
    assert lake.value("SELECT item_id FROM work_item WHERE state = 'open'") == item_id


def test_an_item_without_a_result_goes_to_the_dead_letters(lake: Lake) -> None:
    ids = [make(lake, seed) for seed in range(2)]
    work(
        lake,
        lambda items, _: [done(item) for item in items if item.item_id != ids[0]],
        lambda: dead_letters(lake) == 1 and behind(lake) == 0,
    )
    assert lake.states() == {"done": 1, "bundled": 1}


def test_a_broken_process_ends_and_its_items_go_to_others(lake: Lake) -> None:
    """Spark's Java is gone: no attempt is held against the items."""
    item_id = make(lake)
    seen: list[int] = []

    def broken(*_: object) -> Iterable[Attempt]:
        raise Bug("cannot go on: the Java process is gone")

    def do(items: Items, attempts: Attempts) -> Iterable[Attempt]:
        seen.append(attempts[item_id])
        return [done(item) for item in items]

    with lake.consumer("ingest", *WORK_TOPICS) as consumer, pytest.raises(Bug, match="Java"):
        Worker(INGEST, lake.database, consumer, lake.settings.pipeline, Scripted(broken), ATTEMPTS).run(Stop())
    work(lake, do, lambda: bool(seen) and behind(lake) == 0)
    assert seen == [1] and lake.states() == {"done": 1}


def test_items_that_arrive_while_the_index_is_down_wait_for_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    item_id = make(lake)
    seen: list[int] = []
    is_down = True
    load = INGEST.inputs.of_items

    def of_items(*args: Any) -> Any:
        if is_down:
            raise Unavailable("cannot reach the index")
        return load(*args)

    def do(items: Items, attempts: Attempts) -> Iterable[Attempt]:
        seen.append(attempts[item_id])
        return [done(item) for item in items]

    monkeypatch.setattr(type(INGEST.inputs), "of_items", lambda _, *args: of_items(*args))
    with working(lake, Scripted(do)) as at_work:
        failures = 0
        end = monotonic() + 15
        while failures < 3:
            assert monotonic() < end
            try:
                at_work.step()
            except Unavailable:
                failures += 1
        is_down = False
        at_work.until(lambda: behind(lake) == 0)
    assert seen == [1], "the outage used no attempt up"


def test_a_message_that_comes_twice_is_answered_when_the_item_has_ended(lake: Lake) -> None:
    item_id = make(lake)
    release = threading.Event()
    started: list[uuid.UUID] = []

    def do(items: Items, _: Attempts) -> Iterable[Attempt]:
        started.extend(item.item_id for item in items)
        release.wait(10)
        return [done(item) for item in items]

    with working(lake, Scripted(do)) as at_work:
        at_work.until(lambda: bool(started))
        lake.bus.publish([work_ready(WorkItem(item_id, "ingest", ORG, "logs"))])
        at_work.step(4)
        assert started == [item_id]
        assert behind(lake) == 2, "neither may be passed while the item is under way"
        release.set()
        at_work.until(lambda: behind(lake) == 0)


def test_items_that_ended_or_were_forgotten_are_passed_over(lake: Lake) -> None:
    make(lake)
    with lake.database.transaction() as tx:
        tx.execute("UPDATE work_item SET state = 'stale'")
    unknown = WorkItem(uuid.uuid4(), "ingest", ORG, "logs")
    lake.bus.publish([work_ready(unknown), Outgoing(TOPIC, "k", b"{}")])

    def never(*_: object) -> Iterable[Attempt]:
        raise AssertionError("nothing is to be done")

    work(lake, never, lambda: behind(lake) == 0 and dead_letters(lake) == 1)


def test_several_batches_are_under_way_and_one_holds_many_items(lake: Lake) -> None:
    ids = {make(lake, seed) for seed in range(6)}
    together = threading.Barrier(2, timeout=10)
    batches: list[int] = []
    settings = lake.settings.pipeline.model_copy(update={"batch_items": 3, "jobs": 2})
    ended: set[uuid.UUID] = set()

    def do(items: Items, _: Attempts) -> Iterable[Attempt]:
        batches.append(len(items))
        together.wait()
        ended.update(item.item_id for item in items)
        return [done(item) for item in items]

    with working(lake, Scripted(do), settings) as at_work:
        at_work.until(lambda: ended == ids and behind(lake) == 0)
    assert batches == [3, 3]


def test_asked_to_stop_it_finishes_what_is_under_way(lake: Lake) -> None:
    make(lake)
    stop = Stop()

    def do(items: Items, _: Attempts) -> Iterable[Attempt]:
        stop.request()
        return [done(item) for item in items]

    with lake.consumer("ingest", *WORK_TOPICS) as consumer:
        Worker(INGEST, lake.database, consumer, lake.settings.pipeline, Scripted(do), ATTEMPTS).run(stop)
    assert behind(lake) == 0 and lake.states() == {"done": 1}


def test_nothing_is_begun_while_the_bucket_is_down(lake: Lake) -> None:
    make(lake)
    seen: list[int] = []

    def do(items: Items, attempts: Attempts) -> Iterable[Attempt]:
        seen.extend(attempts.values())
        return [done(item) for item in items]

    runner = Scripted(do)
    runner.paused = True
    with working(lake, runner) as at_work:
        at_work.step(10)
        assert seen == []
        runner.paused = False
        at_work.until(lambda: behind(lake) == 0)
    assert seen == [1], "the outage used no attempt up"
