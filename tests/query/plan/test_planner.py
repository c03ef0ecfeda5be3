"""Which time ranges a plan looks up, and that it has segments of its org alone."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from lakerunner.model.segment import Pruning, Segment
from lakerunner.model.time import NS_PER_S, TimeRange
from lakerunner.query.plan.kept_segments import KeptSegments
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.planner import _MAX_WANTS, Planner, _united
from lakerunner.query.plan.snapshots import Looked


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


class _Wrong:
    """A catalog that finds segments of another org too."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    def lookup(self, *_: Any) -> Looked:
        return Looked(self._segments)


def _of(org_id: uuid.UUID) -> Segment:
    times = TimeRange(0, NS_PER_S)
    return Segment(
        segment_id=uuid.uuid4(), org_id=org_id, collector="c", signal="logs", tier_s=0, time_range=times, row_count=1,
        size_bytes=1, pruning=Pruning({}),
    )  # fmt: skip


@pytest.mark.parametrize("kind", [list, KeptSegments])
def test_segments_of_another_org_are_never_planned(kind: type[list[Segment]]) -> None:
    one, other = uuid.uuid4(), uuid.uuid4()
    mine, foreign = _of(one), _of(other)
    for stored in (kind([mine, foreign]), kind([foreign]), kind([mine])):
        for org_id in (one, other, one):
            planner = Planner(_Wrong(stored), org_id)  # type: ignore[arg-type]
            found = planner.plan(leaf(0, 1, "logs")).segments
            assert list(found) == [each for each in stored if each.org_id == org_id]
