"""Losing the bus entirely loses nothing."""

from __future__ import annotations

import pytest

from lakerunner.bus import topics
from lakerunner.bus.messages import ObjectSeen, WorkReady, decode
from lakerunner.index import leases, outbox
from lakerunner.index.overdue import Overdue
from lakerunner.model.errors import Conflict
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.ingest.stage import INGEST
from lakerunner.pipeline.items import make_item
from lakerunner.pipeline.reconcile import Reconciled, reconcile
from lakerunner.pipeline.stages import STAGES
from tests.pipeline.lake import COLLECTOR, ORG, Lake

AFTER_S = 300.0
EVER = Overdue(AFTER_S, 1e9)


def seen(number: int) -> RawObject:
    return RawObject(ORG, COLLECTOR, "logs", "file:///b", f"otel-raw/{number}.json", f"v{number}", 10)


def age(lake: Lake, seconds: float) -> None:
    with lake.database.transaction() as tx:
        tx.execute("UPDATE raw_object SET seen_at = now() - make_interval(secs => %s)", [seconds])
        tx.execute("UPDATE work_item SET created_at = now() - make_interval(secs => %s)", [seconds])


def pending(lake: Lake) -> list[outbox.Outgoing]:
    return [each.message for each in outbox.pending(lake.database, 10_000)]


def test_what_was_lost_is_announced_as_it_was(lake: Lake) -> None:
    lake.record([seen(1), seen(2)])
    made = make_item(lake.database, INGEST, [seen(2)])
    lake.relay()
    age(lake, AFTER_S + 1)
    assert reconcile(lake.database, STAGES, EVER) == Reconciled(inputs=1, items=1)
    first, second = pending(lake)
    assert first.topic == topics.objects(LOGS).name
    told = decode(ObjectSeen, first.payload)
    assert (told.object_id, told.key, told.size_bytes) == (seen(1).object_id, seen(1).key, 10)
    assert second.topic == topics.work(LOGS, "ingest").name
    assert decode(WorkReady, second.payload).item_id == made


def test_what_is_young_or_over_is_left_alone(lake: Lake) -> None:
    lake.record([seen(1)])
    age(lake, AFTER_S - 5)
    assert reconcile(lake.database, STAGES, EVER) == Reconciled(0, 0)
    with lake.database.transaction() as tx:
        tx.execute("UPDATE raw_object SET state = 'done', item_id = %s", [seen(1).object_id])
    age(lake, 10 * AFTER_S)
    assert reconcile(lake.database, STAGES, EVER) == Reconciled(0, 0)


@pytest.mark.parametrize(
    ("age_s", "due"), [(310, 1), (370, 0), (599, 0), (610, 1), (700, 0), (1_190, 0), (1_230, 1), (2_410, 1), (3_000, 0)]
)
def test_each_is_announced_at_doubling_ages(age_s: float, due: int, lake: Lake) -> None:
    lake.record([seen(1)])
    lake.relay()
    age(lake, age_s)
    assert reconcile(lake.database, STAGES, Overdue(AFTER_S, 60.0)).inputs == due


def test_more_than_a_page_is_announced_in_turns(lake: Lake) -> None:
    lake.record([seen(number) for number in range(2_300)])
    lake.relay()
    age(lake, AFTER_S + 1)
    assert reconcile(lake.database, STAGES, EVER).inputs == 2_300
    told = {decode(ObjectSeen, message.payload).object_id for message in pending(lake)}
    assert len(told) == 2_300


def test_only_the_leader_announces(lake: Lake) -> None:
    lake.record([seen(1)])
    age(lake, AFTER_S + 1)
    lease = leases.acquire(lake.database, "sweeper", "me", 60.0)
    assert lease is not None
    leases.release(lake.database, lease)
    with pytest.raises(Conflict):
        reconcile(lake.database, STAGES, EVER, lease)
