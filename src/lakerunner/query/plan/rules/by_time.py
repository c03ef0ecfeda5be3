"""Keeps segments with rows in the leaf's own time range. The lookup was for the time of all leaves together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakerunner.model.segment import Segment
from lakerunner.query.plan.leaf import Leaf


def by_time(leaf: Leaf, segments: Sequence[Segment], _: Callable[[], object]) -> tuple[Sequence[Segment], str]:
    wanted = leaf.time_range
    kept = [segment for segment in segments if segment.time_range.overlaps(wanted)]
    return kept, times_note(leaf)


def times_note(leaf: Leaf) -> str:
    return f"{leaf.start_ms} to {leaf.end_ms} ms"
