"""Segments have one owner each, all workers own equally many, and few change owners when a worker joins or leaves."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence

import pytest

from lakerunner.query.fanout.flight_workers import FlightWorkers
from lakerunner.query.fanout.placement import BLOCK, dealt, ranked
from lakerunner.query.fanout.protocol import SLOT_NS, EvaluateRequest, Fragment, SegmentObjects

ORGS = [uuid.UUID(int=number) for number in range(1, 9)]
#: Six hours that do not begin with a block.
SLOTS = range(2_833_335, 2_833_335 + 36)


def workers(count: int) -> list[str]:
    return [f"10.0.0.{number}:7301" for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 12, 13, 20])
def test_every_slot_has_all_workers_in_one_order(count: int) -> None:
    known = workers(count)
    for slot in SLOTS:
        order = ranked(known, ORGS[0], slot)
        assert sorted(order) == sorted(known)
        assert order == ranked(known[::-1], ORGS[0], slot)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 12, 13, 20])
def test_the_slots_of_a_block_are_dealt_evenly(count: int) -> None:
    for org_id in ORGS:
        for block in range(-3, 3):
            owned = Counter(ranked(workers(count), org_id, block * BLOCK + nth)[0] for nth in range(BLOCK))
            each = [owned[worker] for worker in workers(count)]
            assert max(each) - min(each) <= 1


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_six_hours_keep_all_workers_about_equally_busy(count: int) -> None:
    for org_id in ORGS:
        owned = Counter(ranked(workers(count), org_id, slot)[0] for slot in SLOTS)
        # By hash alone, the busiest of four workers of an org has up to twice its part.
        assert max(owned.values()) <= 1.5 * len(SLOTS) / count


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_few_slots_change_owners_when_a_worker_joins(count: int) -> None:
    slots = range(1_200)
    moved = 0
    for org_id in ORGS:
        before = [ranked(workers(count), org_id, slot)[0] for slot in slots]
        after = [ranked(workers(count + 1), org_id, slot)[0] for slot in slots]
        moved += sum(old != new for old, new in zip(before, after, strict=True))
    ideal = len(ORGS) * len(slots) / (count + 1)
    assert moved < 2 * ideal


def test_the_slots_of_a_worker_that_fails_are_spread_over_all_others() -> None:
    known = workers(4)
    second = Counter(
        order[1] for slot in range(1_200) if (order := ranked(known, ORGS[0], slot))[0] == known[0]
    )  # fmt: skip
    assert set(second) == set(known[1:])
    assert max(second.values()) < 2 * min(second.values())


@pytest.mark.parametrize(("parts", "count"), [(2, 2), (4, 4), (3, 4), (16, 4), (7, 3)])
def test_parts_of_a_query_are_dealt_evenly(parts: int, count: int) -> None:
    # All of them are owned by one worker, as may happen.
    places = dealt([{workers(count)[0]: 10} for _ in range(parts)], workers(count))
    assert len(places) == parts
    assert max(Counter(places).values()) == -(-parts // count)


def test_a_part_goes_to_the_owner_of_most_of_it_while_that_one_has_room() -> None:
    owned = [{"a": 1, "b": 2}, {"a": 5, "b": 9}, {"a": 3}, {"a": 1}]
    assert dealt(owned, ["a", "b"]) == ["b", "b", "a", "a"]


def test_a_worker_is_asked_first_for_the_part_that_was_dealt_to_it() -> None:
    known = workers(3)
    pool = FlightWorkers(lambda: known, "token")
    try:
        segments = [SegmentObjects(uuid.uuid4(), ("key",), 1, slot * SLOT_NS, slot * SLOT_NS) for slot in SLOTS]
        places = pool.places(ORGS[0], [segments] * 3)
        assert sorted(map(str, places)) == known
        for place in places:
            assert pool._owners(_request(segments, place))[0] == place
        owned = Counter(ranked(known, ORGS[0], segment.slot)[0] for segment in segments)
        assert owned[pool._owners(_request(segments, None))[0]] == max(owned.values())
    finally:
        pool.close()


def _request(segments: Sequence[SegmentObjects], place: str | None) -> EvaluateRequest:
    return EvaluateRequest(
        org_id=ORGS[0], query_id=uuid.uuid4(), segments=tuple(segments), deadline_s=0.0, max_bytes=1,
        fragment=Fragment("promql", b"", ()), place=place,
    )  # fmt: skip
