"""Keeps segments of the leaf's signal. The lookup was for all leaves of the plan together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakerunner.model.segment import Segment
from lakerunner.query.plan.leaf import Leaf


def by_signal(leaf: Leaf, segments: Sequence[Segment], _: Callable[[], object]) -> tuple[Sequence[Segment], str]:
    kept = [segment for segment in segments if segment.signal == leaf.signal]
    return kept, leaf.signal
