"""From leaves to segments: one lookup for all of them, then the rules for each."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from lakerunner.index.lookup import Want
from lakerunner.model.time import TimeRange
from lakerunner.query.catalog import Catalog, Looked
from lakerunner.query.plan import Leaf, LeafPlan
from lakerunner.query.prune import prune


class Planner:
    """Plans of one query: all its leaves see one snapshot of the index, as long as it covers them."""

    def __init__(self, catalog: Catalog, org_id: uuid.UUID) -> None:
        self._catalog = catalog
        self._org_id = org_id
        self._looked: Looked | None = None
        self._hulls: dict[tuple[str, int], TimeRange] = {}
        self.lookups = 0

    def prepare(self, leaves: Sequence[Leaf]) -> None:
        """Look up what all these leaves need, at once."""
        hulls: dict[tuple[str, int], TimeRange] = {}
        for leaf in leaves:
            key, time_range = (leaf.signal, leaf.tier_s), leaf.time_range
            if time_range.start_ns < time_range.end_ns:
                hulls[key] = hulls[key].hull(time_range) if key in hulls else time_range
        wants = [Want(signal, hull, tier_s) for (signal, tier_s), hull in hulls.items()]
        self._looked = self._catalog.lookup(self._org_id, wants)
        self._hulls = hulls
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
        hull = self._hulls.get((leaf.signal, leaf.tier_s))
        return hull is not None and hull.start_ns <= wanted.start_ns and wanted.end_ns <= hull.end_ns
