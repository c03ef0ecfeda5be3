"""Adding a stage, as docs/architecture.md says: a folder's worth of description, one line in the registry, no more."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from lakerunner.bus import topics
from lakerunner.bus.announce import segments_made
from lakerunner.index import outbox, work
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.overdue import Overdue
from lakerunner.index.segment_inputs import segments_of_items
from lakerunner.index.segments import ref
from lakerunner.index.work import ItemState, WorkItem
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS
from lakerunner.model.time import NS_PER_HOUR, TimeRange
from lakerunner.pipeline import stages
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.items import make_item
from lakerunner.pipeline.reconcile import Reconciled, reconcile
from lakerunner.pipeline.stages import boxer_role, worker_role
from lakerunner.runtime.stop import Stop
from tests.faults.clean_roles import until
from tests.pipeline.lake import ORG, Lake
from tests.pipeline.toy_stage import MERGE

HOUR_NS = 490_000 * NS_PER_HOUR
OTHER_ORG = uuid.UUID(int=8)


def segment(minute: int, org_id: uuid.UUID = ORG, hour: int = 0, rows: int = 10) -> Segment:
    start_ns = HOUR_NS + hour * NS_PER_HOUR + minute * 60 * 10**9
    return Segment(fresh_id(), org_id, "shop", "logs", TimeRange(start_ns, start_ns + 1), rows, 100)


def land(lake: Lake, *segments: Segment) -> list[Segment]:
    """Make segments live and announce them, as ingest does."""
    item = WorkItem(fresh_id(), "ingest", ORG, "logs")
    with lake.database.transaction() as tx:
        work.create_item(tx, item)
    result = ItemResult(item.item_id, made=segments, follow_ups=segments_made(segments))
    assert commit_item(lake.database, result) is Outcome.COMMITTED
    lake.relay()
    return list(segments)


def live(lake: Lake, org_id: uuid.UUID = ORG) -> list[tuple[int, int]]:
    """Level and rows of the live segments, in order of time."""
    return [(each.level, each.row_count) for each in lake.segments(LOGS, org_id)]


def behind(lake: Lake) -> int:
    return sum(each.behind for group in ("boxer-compact", "compact") for each in lake.bus.lag(group))


def items(lake: Lake) -> dict[str, int]:
    with lake.database.transaction() as tx:
        return {state: count for state, count in work.count_by_state(tx).items() if count}


@contextmanager
def running(lake: Lake) -> Iterator[None]:
    """The roles that the registry makes of the stage, as they are run, beside a relay."""
    stop = Stop()
    with ExitStack() as stack:
        roles = [boxer_role(MERGE)(lake.settings), worker_role(MERGE)(lake.settings)]
        threads = [threading.Thread(target=role.run, args=(stop,)) for role in roles]
        threads.append(threading.Thread(target=lambda: [lake.relay() for _ in iter(lambda: stop.wait(0.02), True)]))
        for role in roles:
            stack.callback(role.close)
            role.start()
        for thread in threads:
            stack.callback(thread.join)
            thread.start()
        stack.callback(stop.request)
        yield


def box(lake: Lake, done: Callable[[], bool]) -> None:
    with lake.consumer("boxer-compact", topics.made(LOGS, "compact").name) as consumer:
        boxer = Boxer(MERGE, lake.database, consumer, lake.settings.pipeline)

        def step() -> bool:
            boxer.step()
            return done()

        until(step, "boxed")
    lake.relay()


def test_one_line_in_the_registry_makes_the_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "STAGES", (stages.INGEST, MERGE))
    assert [role.name for role in stages.stage_roles()] == ["ingest", "boxer-ingest", "compact", "boxer-compact"]
    assert {"compact-logs", "boxer-compact-logs"} <= {role.name for role in stages.stage_roles_by_signal()}
    assert boxer_role(MERGE, LOGS).sentence == "Gather segments of logs into work items for compact."


def test_segments_of_an_hour_become_one(lake: Lake) -> None:
    land(lake, *(segment(minute) for minute in range(3)))
    land(lake, segment(0, hour=1), segment(0, OTHER_ORG, rows=5))
    land(lake, segment(4))
    with running(lake):
        until(lambda: [level for level, _ in live(lake)] == [1, 1] and live(lake, OTHER_ORG) == [(1, 5)], "merged")
        until(lambda: behind(lake) == 0, "answered")
    assert sorted(live(lake)) == [(1, 10), (1, 40)]
    assert items(lake).keys() == {"done"}


def test_segments_announced_again_are_not_taken_again(lake: Lake) -> None:
    made = land(lake, segment(0), segment(1))
    box(lake, lambda: items(lake) == {"open": 1, "done": 1})
    lake.bus.publish(segments_made(made) * 2)
    box(lake, lambda: sum(each.behind for each in lake.bus.lag("boxer-compact")) == 0)
    assert items(lake) == {"open": 1, "done": 1}
    with running(lake):
        until(lambda: live(lake) == [(1, 20)], "merged")
        lake.bus.publish(segments_made(made))
        until(lambda: behind(lake) == 0, "answered")
    assert live(lake) == [(1, 20)]


def test_boxers_with_the_same_segments_make_one_item(lake: Lake) -> None:
    made = land(lake, *(segment(minute) for minute in range(20)))
    with ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(lambda turn: make_item(lake.database, MERGE, made[:: 1 - 2 * (turn % 2)]), range(6)))
    assert sum(each is not None for each in ids) == 1


def test_a_stale_item_sets_the_segments_free_that_are_still_live(lake: Lake) -> None:
    gone, left = land(lake, segment(0), segment(1))
    first = make_item(lake.database, MERGE, [gone, left])
    other = WorkItem(fresh_id(), "rollup", ORG, "logs")
    with lake.database.transaction() as tx:
        work.create_item(tx, other)
    assert commit_item(lake.database, ItemResult(other.item_id, superseded=[ref(gone)])) is Outcome.COMMITTED
    assert first is not None
    stale = ItemResult(first, made=[segment(5)], superseded=[ref(gone), ref(left)])
    assert commit_item(lake.database, stale) is Outcome.STALE
    second = make_item(lake.database, MERGE, [gone, left])
    assert second is not None and second != first
    with lake.database.transaction() as tx:
        assert work.load_items(tx, [first])[1] == {first: ItemState.STALE}
        assert [each for each, _ in segments_of_items(tx, [first, second])[second]] == [left]


def test_lost_messages_are_announced_again(lake: Lake) -> None:
    """Of three segments one has an item, one is of a level that the stage does not take."""
    taken, free = land(lake, segment(0), segment(1))
    make_item(lake.database, MERGE, [taken])
    with lake.database.transaction() as tx:
        tx.execute("UPDATE segment SET level = 1 WHERE segment_id = %s", [land(lake, segment(2))[0].segment_id])
        tx.execute("UPDATE segment SET created_at = now() - interval '8 minutes'")
        tx.execute("UPDATE work_item SET created_at = now() - interval '8 minutes'")
    lake.relay()
    assert reconcile(lake.database, [MERGE], Overdue(300.0, 1e9)) == Reconciled(inputs=1, items=1)
    announced, ready = (each.message for each in outbox.pending(lake.database, 10))
    assert announced == segments_made([free], ["compact"])[0]
    assert ready.topic == topics.work(LOGS, "compact").name
    assert reconcile(lake.database, [MERGE], Overdue(300.0, 60.0)) == Reconciled(0, 0)


def test_a_message_that_cannot_be_read_goes_to_the_dead_letters(lake: Lake) -> None:
    topic = topics.made(LOGS, "compact").name
    lake.bus.publish([outbox.Outgoing(topic, "k", b"not json")])
    land(lake, segment(0))
    box(lake, lambda: lake.topic(topics.dead(topic).name) == 1 and items(lake) == {"open": 1, "done": 1})
