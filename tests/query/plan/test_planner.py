"""Which time ranges a plan looks up."""

from __future__ import annotations

from lakerunner.model.time import NS_PER_S
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.planner import _MAX_WANTS, _united


def leaf(start_s: int, end_s: int, signal: str = "metrics") -> Leaf:
    return Leaf(signal, start_s * NS_PER_S, end_s * NS_PER_S, ())


def ranges(*leaves: Leaf) -> list[tuple[str, int, int]]:
    wants = [(want.signal, want.time_range) for want in _united(leaves)]
    return [(signal, times.start_ns // NS_PER_S, -(-times.end_ns // NS_PER_S)) for signal, times in wants]


def test_ranges_that_overlap_are_one_and_a_gap_is_not_looked_up() -> None:
    assert ranges(leaf(0, 10), leaf(5, 20), leaf(50, 60)) == [("metrics", 0, 20), ("metrics", 50, 60)]


def test_very_many_ranges_are_looked_up_as_one_per_signal() -> None:
    scattered = [leaf(100 * number, 100 * number + 1) for number in range(_MAX_WANTS + 1)]
    assert len(ranges(*scattered[:-1])) == _MAX_WANTS
    assert ranges(*scattered, leaf(7, 8, "logs")) == [("logs", 7, 8), ("metrics", 0, 100 * _MAX_WANTS + 1)]
