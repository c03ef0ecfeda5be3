from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.pipeline.packing import OPEN_BUNDLES, Bundle, Packer, PackLimits, estimated_bytes

LIMITS = PackLimits(max_weight=100, max_count=7, idle_age_s=2.0, max_age_s=15.0)

arrivals = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 150), st.floats(0, 3)), min_size=1, max_size=200)


def fill(packer: Packer[int], things: list[tuple[str, int, float]]) -> tuple[list[Bundle[int]], float]:
    closed: list[Bundle[int]] = []
    now_s = 0.0
    for number, (group, weight, later_s) in enumerate(things):
        now_s += later_s
        closed += packer.add(group, number, weight, now_s)
        closed += packer.due(now_s, idle=False)
    return closed, now_s


@given(arrivals)
def test_everything_is_in_exactly_one_bundle(things: list[tuple[str, int, float]]) -> None:
    packer: Packer[int] = Packer(LIMITS, max_held=50)
    closed, now_s = fill(packer, things)
    assert packer.held == len(things) - sum(len(bundle.things) for bundle in closed)
    closed += packer.due(now_s + LIMITS.max_age_s, idle=False)
    assert packer.held == 0 and packer.next_due_s(idle=True) is None
    assert sorted(thing for bundle in closed for thing in bundle.things) == list(range(len(things)))


@given(arrivals)
def test_bundles_keep_to_their_group_and_limits(things: list[tuple[str, int, float]]) -> None:
    packer: Packer[int] = Packer(LIMITS, max_held=50)
    closed, now_s = fill(packer, things)
    for bundle in closed + packer.due(now_s + LIMITS.max_age_s, idle=False):
        assert {things[thing][0] for thing in bundle.things} == {bundle.group}
        assert bundle.weight == sum(things[thing][1] for thing in bundle.things)
        assert len(bundle.things) <= LIMITS.max_count
        assert bundle.weight <= LIMITS.max_weight or len(bundle.things) == 1


@given(st.lists(st.integers(1, 100), min_size=30, max_size=300))
def test_bundles_closed_for_want_of_room_are_at_least_half_full(weights: list[int]) -> None:
    packer: Packer[int] = Packer(PackLimits(100, 1_000, 2.0, 15.0), max_held=10_000)
    closed = [bundle for weight in weights for bundle in packer.add("g", 0, weight, 0.0)]
    # The heaviest of several that each could not take the next: two halves would have gone together.
    assert all(2 * bundle.weight > 100 for bundle in closed)


@given(arrivals)
def test_what_is_held_stays_bounded(things: list[tuple[str, int, float]]) -> None:
    packer: Packer[int] = Packer(LIMITS, max_held=10)
    for number, (group, weight, _) in enumerate(things):
        packer.add(group, number, weight, 0.0)
        assert packer.held <= 10
        assert len(packer.due(0.0, idle=False)) == 0
    assert len(packer.due(100.0, idle=True)) <= 3 * OPEN_BUNDLES


def test_an_idle_ingest_gets_bundles_sooner_and_fuller_ones_first() -> None:
    packer: Packer[str] = Packer(LIMITS, max_held=100)
    packer.add("a", "light", 1, 0.0)
    packer.add("b", "heavy", 75, 0.0)
    assert packer.next_due_s(idle=True) == 0.5
    assert packer.due(0.4, idle=True) == []
    assert [bundle.group for bundle in packer.due(0.5, idle=True)] == ["b"]
    assert packer.due(14.9, idle=False) == []
    assert [bundle.group for bundle in packer.due(2.0, idle=True)] == ["a"]


def test_what_waited_before_is_not_held_for_long_again() -> None:
    packer: Packer[str] = Packer(LIMITS, max_held=100)
    packer.add("a", "new", 50, 100.0)
    assert packer.next_due_s(idle=False) == 115.0
    packer.add("a", "old", 1, 101.0, waited_s=10.0)
    assert packer.next_due_s(idle=False) == 106.0
    packer.add("b", "late", 50, 101.0, waited_s=1_000.0)
    # For a moment, for more of the backlog that it came with.
    assert packer.next_due_s(idle=False) == 102.0


def test_a_compressed_object_is_assumed_larger_than_it_is() -> None:
    assert estimated_bytes("a/logs_1.JSON.GZ", 10, 8.0) == 80
    assert estimated_bytes("a/empty.json", 0, 8.0) == 1
