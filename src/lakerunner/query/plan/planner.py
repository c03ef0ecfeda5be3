"""Plans leaves: one lookup of segments for all of them, then the pruning rules for each."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lakerunner.index.lookup import Want
from lakerunner.model.errors import Bug, Conflict
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.kept_segments import KeptSegments
from lakerunner.query.plan.leaf import Leaf, LeafPlan
from lakerunner.query.plan.prune import RAW_ONLY, prune
from lakerunner.query.plan.snapshots import Looked, Snapshot
from lakerunner.query.plan.tiers import choose_tiers

#: More time ranges than this are looked up as one: the pruning rules drop what lies between them.
_MAX_WANTS = 100


class Planner:
    """Plans the leaves of one query. They share one snapshot of the index, as long as it covers them.

    Safe to share between threads: groups of steps are planned in parallel.
    """

    def __init__(
        self,
        catalog: Catalog,
        org_id: uuid.UUID,
        check: Callable[[], object] = lambda: None,
        only: Sequence[Segment] | None = None,
    ) -> None:
        """`only` are the segments to plan with, whatever the index has."""
        self._catalog = catalog
        self._only = only
        self._check = check
        self._org_id = org_id
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        #: The plans of leaves with this snapshot.
        self._plans: dict[Leaf, LeafPlan] = {}
        self.lookups = 0

    def prepare(self, leaves: Sequence[Leaf], coverage: Sequence[CoverageWant] = ()) -> None:
        """Look up the segments of all these leaves at once, and where rules lack rows of them."""
        with self._lock:
            self._look_up(leaves, coverage)

    @property
    def gaps(self) -> Mapping[CoverageWant, Sequence[Gap]]:
        """Where rules lack rows, as far as it was asked and the index answered."""
        return self._snapshot.looked.gaps if self._snapshot else {}

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments that were looked up."""
        return self._snapshot.looked.segments if self._snapshot else ()

    def plan(self, leaf: Leaf) -> LeafPlan:
        """The segments of one leaf. A leaf that was not prepared is looked up now."""
        with self._lock:
            snapshot = self._snapshot
            if snapshot is None or not snapshot.covers(leaf):
                if self.gaps:
                    raise Bug("cannot plan the query: it reads more than was looked up with the coverage of its rules")
                snapshot = self._look_up([leaf])
            known = self._plans.get(leaf)
        looked = snapshot.looked
        looked.require_usable()
        if known is not None:
            return known
        tiers = choose_tiers(leaf, looked.stretches, looked.segments) if leaf.signal == METRICS.name else RAW_ONLY
        if looked.lost:
            tiers = replace(tiers, missed=(*tiers.missed, *looked.missed(leaf)))
        plan = prune(leaf, looked.segments, looked.looked_up_in, self._check, tiers)
        with self._lock:
            if self._snapshot is snapshot:
                self._plans[leaf] = plan
        return plan

    def fingerprint(self) -> str | None:
        """A hash of the set of live segments; None while the index does not answer."""
        snapshot = self._snapshot
        return None if snapshot is None or snapshot.looked.age_s else snapshot.fingerprint()

    def keep(self) -> str | None:
        """Keep the snapshot, so that a later query of this process can return to it by its fingerprint."""
        fingerprint = self.fingerprint()
        if fingerprint is not None and self._snapshot is not None:
            self._catalog.snapshots.keep(self._org_id, fingerprint, self._snapshot)
        return fingerprint

    def return_to(self, fingerprint: str) -> None:
        """Plan with the snapshot that has this fingerprint. Raises Conflict if nobody here knows it any more."""
        with self._lock:
            if self.fingerprint() == fingerprint:
                return
            kept = self._catalog.snapshots.find(self._org_id, fingerprint)
            if kept is None:
                raise Conflict(
                    "cannot resume the stream: segments have arrived or gone since, and this server does not know the "
                    "ones that the stream has read",
                    hint="start again, without Last-Event-ID",
                )
            kept.looked.require_usable()
            self._snapshot = kept
            self._plans.clear()

    def require_usable(self) -> None:
        """Raise if objects that the plan names may have been deleted: an answer would be short."""
        snapshot = self._snapshot
        if snapshot is not None:
            snapshot.looked.require_usable()

    @property
    def age_s(self) -> float:
        """The age of the remembered lookup that the plan uses if the index does not answer; else 0."""
        return self._snapshot.looked.age_s if self._snapshot else 0.0

    @property
    def watermark_ms(self) -> int | None:
        """Every raw object of the plan's signals that arrived before this time is in the segments."""
        return self._snapshot.looked.watermark_ms if self._snapshot else None

    def _look_up(self, leaves: Sequence[Leaf], coverage: Sequence[CoverageWant] = ()) -> Snapshot:
        wants = _united(leaves)
        if self._only is not None:
            looked = Looked(self._only)
        elif coverage:
            looked = self._catalog.lookup(self._org_id, wants, coverage)
        else:
            looked = self._catalog.lookup(self._org_id, wants)
        # The index was asked for one org only. Segments of another org must not pass even if that ever fails.
        if not _are_of(self._org_id, looked.segments):
            looked = replace(looked, segments=[each for each in looked.segments if each.org_id == self._org_id])
        self._snapshot = Snapshot(wants, looked)
        self._plans.clear()
        self.lookups += 1
        return self._snapshot


def _are_of(org_id: uuid.UUID, segments: Sequence[Segment]) -> bool:
    def compare() -> bool:
        return all(segment.org_id == org_id for segment in segments)

    return segments.once(("of", org_id), compare) if isinstance(segments, KeptSegments) else compare()


def _united(leaves: Sequence[Leaf]) -> list[Want]:
    """The wants of the leaves. Time ranges that overlap are joined; if there are very many, so are all of a signal."""
    united = _joined(leaves, gaps=False)
    return united if len(united) <= _MAX_WANTS else _joined(leaves, gaps=True)


def _joined(leaves: Sequence[Leaf], *, gaps: bool) -> list[Want]:
    united: list[Want] = []
    for leaf in sorted(leaves, key=lambda leaf: (leaf.signal, leaf.time_range)):
        want = Want(leaf.signal, leaf.time_range, leaf.reading.tier_s)
        if want.time_range.start_ns == want.time_range.end_ns:
            continue
        last = united[-1] if united else None
        if last and last.signal == want.signal and (gaps or want.time_range.start_ns <= last.time_range.end_ns):
            tier_s = max(last.tier_s, want.tier_s)
            united[-1] = Want(want.signal, last.time_range.hull(want.time_range), tier_s)
        else:
            united.append(want)
    return united
