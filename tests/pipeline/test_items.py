"""How work is spread over workers, and how a worker chooses among orgs."""

from __future__ import annotations

import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus import topics
from lakerunner.index.work import WorkItem
from lakerunner.pipeline.items import next_batch, work_ready
from lakerunner.pipeline.stage import Item

PARTITIONS = 16


def item(org: int, weight: int = 1, number: int = 0) -> Item[object]:  # type: ignore[type-var]
    return Item(uuid.UUID(int=(org << 64) + number), uuid.UUID(int=org), "logs", (), weight, 0.0)


def partition(org: uuid.UUID) -> int:
    message = work_ready(WorkItem(uuid.uuid4(), "ingest", org, "logs"))
    return topics.partition_of(message.key, PARTITIONS)


def test_the_items_of_one_org_reach_every_partition_about_equally() -> None:
    org = uuid.uuid4()
    found = Counter(partition(org) for _ in range(4_000))
    assert len(found) == PARTITIONS
    # However partitions are dealt to two workers, each has a good part of the org's work.
    fewest = sum(sorted(found.values())[: PARTITIONS // 2])
    assert fewest > 0.3 * 4_000


def test_an_org_with_much_work_leaves_the_others_their_turn() -> None:
    waiting = [item(1, number=nth) for nth in range(100)] + [item(2), item(3)]
    batch = next_batch(waiting, 16, 1_000)
    assert Counter(each.org_id.int for each in batch) == {1: 14, 2: 1, 3: 1}


def test_an_org_alone_fills_the_batch_in_its_order() -> None:
    waiting = [item(1, number=nth) for nth in range(100)]
    assert next_batch(waiting, 16, 1_000) == waiting[:16]


def test_a_heavy_item_does_not_keep_a_light_one_of_another_org_waiting() -> None:
    assert [each.org_id.int for each in next_batch([item(1, 60), item(1, 60), item(2, 10)], 16, 100)] == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 200)), min_size=1, max_size=60))
def test_a_batch_is_never_empty_and_never_too_large(orgs: list[tuple[int, int]]) -> None:
    waiting = [item(org, weight, number) for number, (org, weight) in enumerate(orgs)]
    batch = next_batch(waiting, 8, 100)
    assert 1 <= len(batch) <= 8
    assert len(batch) == 1 or sum(each.weight for each in batch) <= 100
    for org in {each.org_id for each in batch}:
        mine = [each for each in batch if each.org_id == org]
        assert mine == [each for each in waiting if each.org_id == org][: len(mine)]
