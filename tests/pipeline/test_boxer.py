"""The boxer against a real index and bus: what it promises whatever is delivered, however often."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lakerunner.bus import topics
from lakerunner.bus.messages import WorkReady, decode
from lakerunner.index.ledger import objects_of_items
from lakerunner.index.outbox import Outgoing
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals import LOGS, TRACES
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.ingest.stage import INGEST
from lakerunner.pipeline.items import make_item
from lakerunner.runtime.settings import PipelineSettings
from tests.pipeline.lake import COLLECTOR, OBJECT_TOPICS, ORG, Lake


def seen(number: int, size_bytes: int = 10, collector: str = COLLECTOR) -> RawObject:
    return RawObject(ORG, collector, "logs", "file:///b", f"otel-raw/{number}.json", f"v{number}", size_bytes)


def steps(lake: Lake, until: Callable[[], bool], settings: PipelineSettings | None = None) -> None:
    with lake.consumer("boxer-ingest", *OBJECT_TOPICS) as consumer:
        boxer = Boxer(INGEST, lake.database, consumer, settings or lake.settings.pipeline)
        end = time.monotonic() + 15
        while not until():
            assert time.monotonic() < end, lake.states()
            boxer.step()


def behind(lake: Lake) -> int:
    return sum(each.behind for each in lake.bus.lag("boxer-ingest"))


def items(lake: Lake) -> int:
    return int(lake.value("SELECT count(*) FROM work_item"))


def test_objects_become_items_that_are_announced(lake: Lake) -> None:
    lake.record([seen(1), seen(2), seen(3, collector="other")])
    steps(lake, lambda: lake.states() == {"bundled": 3} and behind(lake) == 0)
    lake.relay()
    ready = [decode(WorkReady, record.payload) for record in lake.bus.read(topics.work(LOGS, "ingest").name)]
    assert {each.stage for each in ready} == {"ingest"} and len(ready) == 2
    with lake.database.transaction() as tx:
        items = objects_of_items(tx, [each.item_id for each in ready]).values()
    found = [[raw.collector for raw, _ in objects] for objects in items]
    assert sorted(map(sorted, found)) == [["other"], [COLLECTOR, COLLECTOR]]


def test_large_objects_are_spread_over_items(lake: Lake) -> None:
    settings = lake.settings.pipeline.model_copy(update={"bundle_bytes": 100, "bundle_age_s": 60, "bundle_idle_s": 60})
    lake.record([seen(number, 50) for number in range(6)])
    steps(lake, lambda: lake.states() == {"bundled": 6}, settings)
    assert items(lake) == 3


def test_objects_delivered_again_are_simply_done(lake: Lake) -> None:
    raws = [seen(1), seen(2)]
    lake.record(raws)
    steps(lake, lambda: behind(lake) == 0 and items(lake) == 1)
    lake.announce([*raws, *raws])
    lake.record([seen(3)])
    steps(lake, lambda: behind(lake) == 0 and lake.states() == {"bundled": 3})
    assert items(lake) == 2


def test_a_restart_before_the_bundle_is_closed_loses_nothing(lake: Lake) -> None:
    patient = lake.settings.pipeline.model_copy(update={"bundle_age_s": 60, "bundle_idle_s": 60})
    lake.record([seen(1), seen(2)])
    with lake.consumer("boxer-ingest", *OBJECT_TOPICS) as consumer:
        boxer = Boxer(INGEST, lake.database, consumer, patient)
        for _ in range(5):
            boxer.step()
        assert boxer.held == 2
    assert lake.states() == {"seen": 2}
    steps(lake, lambda: lake.states() == {"bundled": 2})


def test_a_message_that_cannot_be_read_goes_to_the_dead_letters(lake: Lake) -> None:
    topic = topics.objects(TRACES).name
    lake.bus.publish([Outgoing(topic, "k", b"not json")])
    lake.record([seen(1)])
    steps(lake, lambda: lake.topic(topics.dead(topic).name) == 1 and lake.states() == {"bundled": 1})


def test_boxers_with_the_same_objects_make_one_item(lake: Lake) -> None:
    raws = [seen(number) for number in range(20)]
    lake.record(raws)
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda turn: make_item(lake.database, INGEST, raws[:: 1 - 2 * (turn % 2)]), range(6)))
    assert sum(each is not None for each in made) == 1
    assert items(lake) == 1 and lake.states() == {"bundled": 20}


def test_the_same_key_uploaded_again_is_another_object(lake: Lake) -> None:
    first = seen(1)
    lake.record([first, replace(first, version="v1-again")])
    steps(lake, lambda: lake.states() == {"bundled": 2})


def test_bundles_wait_while_ingest_has_enough_to_do(lake: Lake) -> None:
    settings = lake.settings.pipeline.model_copy(update={"bundle_idle_s": 0.01, "bundle_age_s": 60})
    for number in range(4):
        lake.record([seen(number)])
        steps(lake, lambda number=number: items(lake) == number + 1, settings)  # type: ignore[misc]
    lake.record([seen(10)])
    with lake.consumer("boxer-ingest", *OBJECT_TOPICS) as consumer:
        boxer = Boxer(INGEST, lake.database, consumer, settings)
        for _ in range(6):
            boxer.step()
        assert boxer.held == 1 and items(lake) == 4
        with lake.database.transaction() as tx:
            tx.execute("UPDATE work_item SET state = 'done'")
        end = time.monotonic() + 5
        while items(lake) == 4:
            assert time.monotonic() < end
            boxer.step()


def test_a_restarted_boxer_does_not_let_objects_wait_again(lake: Lake) -> None:
    settings = lake.settings.pipeline.model_copy(update={"bundle_idle_s": 0.01, "bundle_age_s": 60})
    for number in range(4):
        lake.record([seen(number)])
        steps(lake, lambda number=number: items(lake) == number + 1, settings)  # type: ignore[misc]
    lake.record([seen(10)])
    with lake.database.transaction() as tx:
        tx.execute("UPDATE bus_message SET created_at = created_at - interval '1 minute'")
    steps(lake, lambda: items(lake) == 5, settings)


def test_objects_of_boxers_that_died_do_not_wait_for_more(lake: Lake) -> None:
    """After two deaths messages are handed out one by one; each would wait for the whole age of a bundle."""
    patient = lake.settings.pipeline.model_copy(update={"bundle_age_s": 60, "bundle_idle_s": 60})
    lake.record([seen(number) for number in range(20)])
    with lake.consumer("boxer-ingest", *OBJECT_TOPICS) as consumer:
        consumer.poll(0, 0.0)
    with lake.database.transaction() as tx:
        tx.execute(
            "UPDATE bus_cursor c SET handed = next_offset, attempts = 1, member = 'dead' FROM bus_partition p"
            " WHERE p.topic = c.topic AND p.partition = c.partition AND next_offset > 0"
        )
    steps(lake, lambda: lake.states() == {"bundled": 20} and behind(lake) == 0, patient)
