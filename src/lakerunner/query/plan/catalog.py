"""The segments that this process knows: one light lookup per plan, and recent lookups for when the index is down."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakerunner.index.database import Database
from lakerunner.index.deletions import hidden_rows
from lakerunner.index.lookup import Found, Lost, Want, find, find_covered, load_segments
from lakerunner.index.rule_coverage import CoverageRange, Uncovered
from lakerunner.index.segments import SegmentRef
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_S
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.kept_segments import KeptSegments
from lakerunner.query.plan.snapshots import Looked, Snapshots
from lakerunner.query.plan.tiers import TierStretch

#: How many descriptions of segments are cached, at about a kilobyte each, and more with many metric names.
_MAX_SEGMENTS = 50_000
#: Lookups remembered for when the index does not answer: the number of orgs, and of lookups per org.
_MAX_ORGS, _MAX_LOOKUPS = 256, 16
#: Lists of segments that are kept as they are: their number, and the segments of each.
_MAX_SETS, _MAX_SET = 256, 2_000


@dataclass(frozen=True, slots=True)
class _Recent:
    org_id: uuid.UUID
    wants: tuple[Want, ...]
    segments: Sequence[Segment]
    watermark_ms: int | None
    stretches: Sequence[TierStretch]
    lost: Sequence[Lost]
    at_s: float


class Catalog:
    """Looks up segments, and caches their descriptions: segments are immutable. Safe to share between threads."""

    def __init__(
        self,
        database: Database,
        *,
        patience_s: float = 300.0,
        grace_s: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Objects of segments that end may be deleted `grace_s` later, so no lookup may be used for longer."""
        self._database = database
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._clock = clock
        self._lock = threading.Lock()
        self.snapshots = Snapshots()
        self._known: OrderedDict[uuid.UUID, Segment] = OrderedDict()
        #: The segments of recent lookups, by org and by what the index named.
        self._sets: OrderedDict[tuple[int, bytes], KeptSegments] = OrderedDict()
        self._recent: OrderedDict[tuple[int, tuple[str, ...]], list[_Recent]] = OrderedDict()

    def lookup(self, org_id: uuid.UUID, wants: Sequence[Want], coverage: Sequence[CoverageWant] = ()) -> Looked:
        """The org's live segments that any want needs, ordered by time, and where rules lack rows of them."""
        wants = tuple(want for want in wants if want.time_range.start_ns < want.time_range.end_ns)
        if not wants:
            return Looked(())
        asked_at_s = self._clock()
        try:
            segments, found, gaps = self._ask(org_id, wants, coverage)
        except Unavailable as reason:
            return self._remembered(org_id, wants, reason)
        stretches = [TierStretch(*stretch) for stretch in found.stretches]
        self._remember(_Recent(org_id, wants, segments, found.watermark_ms, stretches, found.lost, asked_at_s))
        # A segment that was live when the index was asked ended later, if at all.
        usable_until_s = asked_at_s + self._grace_s
        return Looked(segments, 0.0, usable_until_s, found.watermark_ms, stretches, gaps, found.lost)

    def _ask(
        self, org_id: uuid.UUID, wants: Sequence[Want], coverage: Sequence[CoverageWant]
    ) -> tuple[list[Segment], Found, dict[CoverageWant, list[Gap]]]:
        gaps: dict[CoverageWant, list[Gap]] = {}
        if coverage:
            # A segment that is committed between two snapshots would be read raw, and missed in the rule's series.
            asked = [want for want in coverage if want.rule is not None]
            ranges = [CoverageRange(want.rule, want.start_ns, want.end_ns) for want in asked if want.rule is not None]
            answer, found = self._database.read(lambda tx: find_covered(tx, org_id, wants, ranges))
            gaps = {want: _gaps(uncovered) for want, uncovered in zip(asked, found, strict=True)}
        else:
            answer = self._database.read(lambda tx: find(tx, org_id, wants))
        segments = self._described(org_id, answer)
        if answer.hidden:
            segments = self._with_hidden(segments, answer.hidden)
        return segments, answer, gaps

    def _described(self, org_id: uuid.UUID, answer: Found) -> list[Segment]:
        """The segments that were found, ordered by time. The list is shared, and never changed."""
        # The number of an id is hashed faster than the id.
        name = org_id.int, answer.name
        with self._lock:
            known = self._sets.get(name)
            if known is not None:
                self._sets.move_to_end(name)
                return known
        found, missing = self._split(answer.refs)
        # Segments never change, so the descriptions need not come from the same snapshot as the references.
        fresh = self._database.read(lambda tx: load_segments(tx, missing)) if missing else []
        segments = KeptSegments(
            sorted([*found, *fresh], key=lambda segment: (segment.time_range.start_ns, segment.segment_id))
        )
        with self._lock:
            for segment in fresh:
                self._known[segment.segment_id] = segment
            while len(self._known) > _MAX_SEGMENTS:
                self._known.popitem(last=False)
            if len(segments) == len(answer.raw_refs) <= _MAX_SET:
                self._sets[name] = segments
            while len(self._sets) > _MAX_SETS:
                self._sets.popitem(last=False)
        return segments

    def _with_hidden(
        self, segments: Sequence[Segment], hidden: Mapping[uuid.UUID, Sequence[uuid.UUID]]
    ) -> list[Segment]:  # fmt: skip
        """The segments, with the rows that deletions hide. A deletion never changes, so it may be read later."""
        ids = {each for found in hidden.values() for each in found}
        known = self._database.read(lambda tx: hidden_rows(tx, list(ids)))
        return [
            replace(segment, hidden=tuple(known[each].in_tier(segment.tier_s) for each in sorted(found)))
            if (found := hidden.get(segment.segment_id))
            else segment
            for segment in segments
        ]

    def _split(self, refs: Sequence[SegmentRef]) -> tuple[list[Segment], list[SegmentRef]]:
        found, missing = [], []
        with self._lock:
            for ref in refs:
                segment = self._known.get(ref.segment_id)
                if segment is None:
                    missing.append(ref)
                else:
                    self._known.move_to_end(ref.segment_id)
                    found.append(segment)
        return found, missing

    def _remember(self, lookup: _Recent) -> None:
        key = (lookup.org_id.int, tuple(sorted({want.signal for want in lookup.wants})))
        with self._lock:
            kept = self._recent.setdefault(key, [])
            self._recent.move_to_end(key)
            # A lookup that covers an earlier one replaces it.
            useful = [
                old
                for old in kept
                if lookup.at_s - old.at_s <= self._patience_s and not _covers(lookup.wants, old.wants, 0)
            ]
            kept[:] = [*useful[1 - _MAX_LOOKUPS :], lookup]
            while len(self._recent) > _MAX_ORGS:
                self._recent.popitem(last=False)

    def _remembered(self, org_id: uuid.UUID, wants: Sequence[Want], reason: Unavailable) -> Looked:
        """The latest lookup that covers the wants, apart from the time that has passed since then."""
        now_s = self._clock()
        with self._lock:
            all_recent = [recent for kept in self._recent.values() for recent in kept if recent.org_id == org_id]
        for recent in sorted(all_recent, key=lambda recent: -recent.at_s):
            age_s = now_s - recent.at_s
            if age_s <= self._patience_s and _covers(recent.wants, wants, int((age_s + 1) * NS_PER_S)):
                segments = [segment for segment in recent.segments if any(_needs(want, segment) for want in wants)]
                usable_until_s = recent.at_s + self._grace_s
                return Looked(
                    segments, max(age_s, 0.001), usable_until_s, recent.watermark_ms, recent.stretches, lost=recent.lost
                )
        raise reason


def _gaps(uncovered: Sequence[Uncovered]) -> list[Gap]:
    """Uncovered stretches are half-open; those here are open at the start."""
    return [Gap(each.start_ns - 1, each.end_ns - 1, each.reason) for each in uncovered]


def _covers(known: Sequence[Want], wants: Sequence[Want], slack_ns: int) -> bool:
    """Whether each want lies within a known one. Its end may be later by up to `slack_ns`."""
    for want in wants:
        times = want.time_range
        for covering in known:
            if (
                covering.signal == want.signal
                and covering.tier_s >= want.tier_s
                and covering.time_range.start_ns <= times.start_ns
                and covering.time_range.end_ns + slack_ns >= times.end_ns
            ):
                break
        else:
            return False
    return True


def _needs(want: Want, segment: Segment) -> bool:
    return (
        segment.signal == want.signal and segment.tier_s <= want.tier_s and segment.time_range.overlaps(want.time_range)
    )
