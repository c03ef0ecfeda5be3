"""Filters of segments in the API's memory: no worker is asked about segments that cannot hold what a query looks for.

Workers decide the same, and are asked where the filters are not held. They are fetched from a worker once filters
have excluded something there, in a thread of their own, so that no query waits for them.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lakerunner.model.errors import LakeError
from lakerunner.query.fanout.protocol import SegmentObjects
from lakerunner.query.metrics import FILTERS_FETCHED, SEGMENTS_EXCLUDED
from lakerunner.query.scan.rows.conditions.decided import Conditions
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING, Predicate
from lakerunner.query.scan.rows.filter_bytes import SegmentFilters
from lakerunner.query.scan.rows.request import RowSegment
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.runtime.metrics import SWALLOWED
from lakerunner.runtime.telemetry import log

#: Segments that wait to be fetched; further ones are fetched when they are asked for again.
_MAX_WANTED = 256
#: Segments that are fetched with one request.
_AT_ONCE = 8
#: What was decided about conditions, as a share of the bytes of filters.
_DECIDED_SHARE = 8
_DECIDED_BYTES = 128
#: Lists of segments of which it is remembered what a condition leaves.
_MAX_LAST = 256
#: The thread ends when nothing was wanted for this long.
_LINGER_S = 30.0
#: Workers that could not give filters are left alone for this long.
_PAUSE_S = 60.0

#: Fetches the packed filters of segments of an org from workers.
Fetch = Callable[[uuid.UUID, Sequence[SegmentObjects]], Iterator[tuple[uuid.UUID, bytes]]]
#: What excluded row groups, and how many each.
Excluded = dict[str, int]
_NOT: Excluded = {}


@dataclass(frozen=True, slots=True)
class _Divided:
    """Segments that a condition needs, and what excluded the others. It holds both, so that nobody gets their names."""

    condition: Predicate
    segments: Sequence[SegmentObjects]
    version: int
    left: Sequence[SegmentObjects]
    counts: Excluded


class HeldFilters:
    """The filters that one API process holds, within `limit_bytes`. Safe to share between threads."""

    def __init__(self, limit_bytes: int, fetch: Fetch) -> None:
        self._fetch = fetch
        self._held: ByteLru[SegmentFilters] = ByteLru(limit_bytes)
        self._conditions = Conditions(limit_bytes // _DECIDED_SHARE)
        self._decided: ByteLru[Excluded] = ByteLru(limit_bytes // _DECIDED_SHARE)
        self._wanted: dict[uuid.UUID, tuple[uuid.UUID, SegmentObjects]] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._paused_until_s = 0.0
        #: Grows with every filter that comes to be held.
        self._version = 0
        #: How the segments of recent queries were divided, by the identity of the condition and of their list.
        self._last: dict[tuple[int, int], _Divided] = {}

    def kept(
        self, condition: Predicate, segments: Sequence[SegmentObjects]
    ) -> tuple[Sequence[SegmentObjects], Excluded]:
        """The segments that may have rows of the condition, and what excluded the row groups of the others."""
        if condition == EVERYTHING:
            return segments, _NOT
        # What was excluded stays so. More may be once more filters are held.
        name, version = (id(condition), id(segments)), self._version
        known = self._last.get(name)
        if known is None or known.version != version or known.segments is not segments:
            left, counts = self._divided(condition, segments)
            known = _Divided(condition, segments, version, left, counts)
            if isinstance(segments, tuple):
                if len(self._last) >= _MAX_LAST:
                    self._last = {}
                self._last[name] = known
        if known.counts:
            SEGMENTS_EXCLUDED.inc(len(segments) - len(known.left))
        return known.left, known.counts

    def _divided(
        self, condition: Predicate, segments: Sequence[SegmentObjects]
    ) -> tuple[Sequence[SegmentObjects], Excluded]:
        number = self._conditions.condition(condition).number
        left: list[SegmentObjects] = []
        counts: Excluded = {}
        for segment in segments:
            excluded = self._excluded(segment, condition, number)
            if not excluded:
                left.append(segment)
            for name, count in excluded.items():
                counts[name] = counts.get(name, 0) + count
        return (left, counts) if counts else (segments, _NOT)

    def _excluded(self, segment: SegmentObjects, condition: Predicate, number: int | None) -> Excluded:
        if number is None:
            return _NOT
        found = self._decided.get((segment.segment_id, number))
        if found is None:
            held = self._held.get(segment.segment_id)
            if held is None:
                return _NOT
            found = held.excluded(_row_segment(segment), condition) or _NOT
            self._decided.put((segment.segment_id, number), found, _DECIDED_BYTES)
        return found

    def want(self, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> None:
        """Fetch the filters of these segments soon, as far as they are not held."""
        if time.monotonic() < self._paused_until_s:
            return
        missing = [each for each in segments if not self._held.has(each.segment_id)]
        if not missing:
            return
        with self._changed:
            for each in missing[: _MAX_WANTED - len(self._wanted)]:
                self._wanted.setdefault(each.segment_id, (org_id, each))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="filters", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._wanted and not self._closed:
                    self._changed.wait(_LINGER_S)
                if self._closed or not self._wanted:
                    self._thread = None
                    return
                org_id = next(iter(self._wanted.values()))[0]
                some = [each for of, each in self._wanted.values() if of == org_id][:_AT_ONCE]
            try:
                for segment_id, packed in self._fetch(org_id, some):
                    made = SegmentFilters(packed)
                    self._held.put(segment_id, made, made.size_bytes)
                    self._version += 1
                    FILTERS_FETCHED.inc()
            except LakeError as error:
                # Queries go on without them, and want them again.
                SWALLOWED.labels("held_filters").inc()
                self._paused_until_s = time.monotonic() + _PAUSE_S
                log().info("filters of segments not fetched", segments=len(some), reason=str(error))
            with self._changed:
                for each in some:
                    self._wanted.pop(each.segment_id, None)


def _row_segment(segment: SegmentObjects) -> RowSegment:
    # Hidden rows are not part of the condition: what excludes the others too is enough.
    return RowSegment(segment.segment_id, segment.keys[0], segment.size_bytes, segment.start_ns, segment.end_ns)
