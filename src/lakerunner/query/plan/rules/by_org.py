"""Only segments of the asking org. The index was asked for no others: this is the second lock on that door."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.model.segment import Segment
from lakerunner.query.plan.leaf import Leaf


def by_org(leaf: Leaf, segments: Sequence[Segment]) -> tuple[Sequence[Segment], str]:
    return [segment for segment in segments if segment.org_id == leaf.org_id], f"org {leaf.org_id}"
