"""Snapshots of the index, kept so that an interrupted stream can go on with the same segments."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import xxhash

from lakerunner.index.lookup import Lost, Want
from lakerunner.model.errors import Conflict
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.plan.coverage import CoverageWant, Gap
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.plan.tiers import TierStretch, times_text

#: Snapshots that a process keeps for streams, at a few kilobytes per hundred segments.
_MAX_KEPT = 64
#: Lost segments that a warning names.
_NAMED = 3


class SnapshotTooOld(Conflict):
    """The snapshot of a query is older than the grace period of the sweeper: it would be answered short."""

    code = "snapshot_too_old"


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of a lookup. `age_s` is above 0 if the index does not answer, and the result is a remembered one."""

    segments: Sequence[Segment]
    age_s: float = 0.0
    #: Until when no object of the segments is deleted, by this process's monotonic clock.
    usable_until_s: float = math.inf
    #: Every raw object of the wanted signals that arrived before it is in the segments (index/watermark.py).
    watermark_ms: int | None = None
    #: Where the windows of tiers are clean in the same snapshot of the index.
    stretches: Sequence[TierStretch] = ()
    #: Where rules lack rows in the same snapshot. Of a remembered lookup, that is not known.
    gaps: Mapping[CoverageWant, Sequence[Gap]] = field(default_factory=dict)
    #: Raw segments whose objects are missing in the bucket: no answer has their rows.
    lost: Sequence[Lost] = ()

    def missed(self, leaf: Leaf) -> tuple[str, ...]:
        """A sentence about lost segments of the leaf's time. Whether they hold rows that it selects is not known."""
        lost = [each for each in self.lost if each.signal == leaf.signal and each.time_range.overlaps(leaf.time_range)]
        if not lost:
            return ()
        start_ms = min(each.time_range.start_ns for each in lost) // NS_PER_MS
        end_ms = -(-max(each.time_range.end_ns for each in lost) // NS_PER_MS)
        ids = ", ".join(str(each.segment_id) for each in lost[:_NAMED])
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        sentence = (
            f"rows of {leaf.signal} {times_text((start_ms, end_ms))} may be missing from this answer: the"
            f" objects of {len(lost)} segment{'s' if len(lost) > 1 else ''} are gone from the bucket ({ids}{more})"
        )
        return (sentence,)

    @property
    def looked_up_in(self) -> str:
        return "memory" if self.age_s else "index"

    def require_usable(self) -> None:
        """Refuse segments that may have been superseded, and their objects deleted, since they were looked up."""
        if time.monotonic() > self.usable_until_s:
            raise SnapshotTooOld(
                "cannot go on with the query: its snapshot of the index is older than sweep.grace_s, and objects that "
                "it needs may be deleted by now",
                hint="ask again, for a shorter time range; or raise sweep.grace_s",
            )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the index was asked, and what it returned. One object, so that threads never see half of a change."""

    wants: Sequence[Want]
    looked: Looked

    def covers(self, leaf: Leaf) -> bool:
        """Whether the leaf's time was looked up. Where its tiers were not, it reads finer ones or raw."""
        wanted = leaf.time_range
        if wanted.start_ns == wanted.end_ns:
            return True
        return any(
            want.signal == leaf.signal
            and want.time_range.start_ns <= wanted.start_ns
            and wanted.end_ns <= want.time_range.end_ns
            for want in self.wants
        )

    def fingerprint(self) -> str:
        """A hash of the set of segments, of what is hidden in them or lost, and of where tiers may be read."""
        digest = xxhash.xxh3_128()
        for segment in sorted(self.looked.segments, key=lambda each: each.segment_id.bytes):
            digest.update(segment.segment_id.bytes)
            for hidden in segment.hidden:
                digest.update(hidden.deletion_id.bytes)
        for lost in sorted(self.looked.lost, key=lambda each: each.segment_id.bytes):
            digest.update(lost.segment_id.bytes)
        for stretch in sorted(self.looked.stretches, key=lambda one: (one.tier_s, one.start_ns, one.end_ns)):
            digest.update(repr(stretch).encode())
        return digest.hexdigest()


class Snapshots:
    """The snapshots of recent streams, by org and fingerprint. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[uuid.UUID, str], Snapshot] = OrderedDict()

    def keep(self, org_id: uuid.UUID, fingerprint: str, snapshot: Snapshot) -> None:
        with self._lock:
            self._kept[org_id, fingerprint] = snapshot
            self._kept.move_to_end((org_id, fingerprint))
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)

    def find(self, org_id: uuid.UUID, fingerprint: str) -> Snapshot | None:
        with self._lock:
            return self._kept.get((org_id, fingerprint))
