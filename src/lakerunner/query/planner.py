"""From leaves to segments: one lookup for all of them, then the rules for each."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from lakerunner.index.lookup import Want
from lakerunner.query.catalog import Catalog, Looked
from lakerunner.query.plan import Leaf, LeafPlan
from lakerunner.query.prune import prune


class Planner:
    """Plans of one query: all its leaves see one snapshot of the index, as long as it covers them."""

    def __init__(self, catalog: Catalog, org_id: uuid.UUID) -> None:
        self._catalog = catalog
        self._org_id = org_id
        self._looked: Looked | None = None
        self._wants: list[Want] = []
        self.lookups = 0

    def prepare(self, leaves: Sequence[Leaf]) -> None:
        """Look up what all these leaves need, at once."""
        self._wants = _united(leaves)
        self._looked = self._catalog.lookup(self._org_id, self._wants)
        self.lookups += 1

    def plan(self, leaf: Leaf) -> LeafPlan:
        """The segments of one leaf. One that was not prepared for is looked up now."""
        looked = self._looked
        if looked is None or not self._covered(leaf):
            self.prepare([leaf])
            looked = self._looked
        assert looked is not None
        return prune(leaf, looked.segments, looked.looked_up_in)

    @property
    def age_s(self) -> float:
        """How old the segments are that the plan goes by, when the index did not answer; else 0."""
        return self._looked.age_s if self._looked else 0.0

    def _covered(self, leaf: Leaf) -> bool:
        wanted = leaf.time_range
        if wanted.start_ns == wanted.end_ns:
            return True
        return any(
            (want.signal, want.tier_s) == (leaf.signal, leaf.tier_s)
            and want.time_range.start_ns <= wanted.start_ns
            and wanted.end_ns <= want.time_range.end_ns
            for want in self._wants
        )


def _united(leaves: Sequence[Leaf]) -> list[Want]:
    """What the leaves want, overlapping times as one; those apart stay so, and nothing between them is looked up."""
    united: list[Want] = []
    for leaf in sorted(leaves, key=lambda leaf: (leaf.signal, leaf.tier_s, leaf.time_range)):
        want = Want(leaf.signal, leaf.time_range, leaf.tier_s)
        if want.time_range.start_ns == want.time_range.end_ns:
            continue
        last = united[-1] if united else None
        if (
            last
            and (last.signal, last.tier_s) == (want.signal, want.tier_s)
            and (want.time_range.start_ns <= last.time_range.end_ns)
        ):
            united[-1] = Want(want.signal, last.time_range.hull(want.time_range), want.tier_s)
        else:
            united.append(want)
    return united
