"""Plans leaves: one lookup of segments for all of them, then the pruning rules for each."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash

from lakerunner.index.lookup import Want
from lakerunner.query.plan.catalog import Catalog, Looked
from lakerunner.query.plan.leaf import Leaf, LeafPlan
from lakerunner.query.plan.prune import prune


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What the index was asked, and what it returned. One object, so that threads never see half of a change."""

    wants: Sequence[Want]
    looked: Looked

    def covers(self, leaf: Leaf) -> bool:
        wanted = leaf.time_range
        if wanted.start_ns == wanted.end_ns:
            return True
        return any(
            (want.signal, want.tier_s) == (leaf.signal, leaf.tier_s)
            and want.time_range.start_ns <= wanted.start_ns
            and wanted.end_ns <= want.time_range.end_ns
            for want in self.wants
        )


class Planner:
    """Plans the leaves of one query. They share one snapshot of the index, as long as it covers them.

    Safe to share between threads: groups of steps are planned in parallel.
    """

    def __init__(self, catalog: Catalog, org_id: uuid.UUID) -> None:
        self._catalog = catalog
        self._org_id = org_id
        self._lock = threading.Lock()
        self._snapshot: _Snapshot | None = None
        self.lookups = 0

    def prepare(self, leaves: Sequence[Leaf]) -> None:
        """Look up the segments of all these leaves at once."""
        with self._lock:
            self._look_up(leaves)

    def plan(self, leaf: Leaf) -> LeafPlan:
        """The segments of one leaf. A leaf that was not prepared is looked up now."""
        with self._lock:
            snapshot = self._snapshot
            if snapshot is None or not snapshot.covers(leaf):
                snapshot = self._look_up([leaf])
        return prune(leaf, snapshot.looked.segments, snapshot.looked.looked_up_in)

    def fingerprint(self) -> str | None:
        """A hash of the set of live segments; None while the index does not answer."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.looked.age_s:
            return None
        digest = xxhash.xxh3_128()
        for segment_id in sorted(segment.segment_id.bytes for segment in snapshot.looked.segments):
            digest.update(segment_id)
        return digest.hexdigest()

    @property
    def age_s(self) -> float:
        """The age of the remembered lookup that the plan uses if the index does not answer; else 0."""
        return self._snapshot.looked.age_s if self._snapshot else 0.0

    @property
    def watermark_ms(self) -> int | None:
        """Every raw object of the plan's signals that arrived before this time is in the segments."""
        return self._snapshot.looked.watermark_ms if self._snapshot else None

    def _look_up(self, leaves: Sequence[Leaf]) -> _Snapshot:
        wants = _united(leaves)
        looked = self._catalog.lookup(self._org_id, wants)
        # The index was asked for one org only. Segments of another org must not pass even if that ever fails.
        of_org = [segment for segment in looked.segments if segment.org_id == self._org_id]
        self._snapshot = _Snapshot(wants, replace(looked, segments=of_org))
        self.lookups += 1
        return self._snapshot


def _united(leaves: Sequence[Leaf]) -> list[Want]:
    """The wants of the leaves. Overlapping time ranges are joined; nothing in a gap between ranges is looked up."""
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
