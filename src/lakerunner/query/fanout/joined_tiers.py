"""Samples of a tier's segments, joined once and kept in memory.

A month of a coarse tier is tens of small segments, which every query of a dashboard reads again. Choosing and merging
their samples takes longer than computing with them, so the merged samples of a selector are kept. Segments never
change: the ids of the segments, the selector and the need name the result.

Where a query reads most of what its segments have, all of them are joined: those of tiers, and the raw ones of the last
hour. The next query over the same segments merges nothing, whatever its times are. Samples outside of its times are in
no window of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import xxhash

from lakerunner.model.segment import RAW_TIER_S
from lakerunner.query.fanout.answer import Cost, SegmentAnswer
from lakerunner.query.fanout.protocol import Kind, ScanRequest, SegmentObjects
from lakerunner.query.plan.leaf import Piece
from lakerunner.query.scan.samples.decoded import choose
from lakerunner.query.scan.samples.merge import joined
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.series.label_list import taken
from lakerunner.runtime.byte_lru import ByteLru

#: Fewer segments of a tier than this are read one by one.
_LEAST_SEGMENTS = 4
_ALL_TIME_MS = (-(1 << 62), 1 << 62)
#: All segments of a request are joined if they are not larger than this, and the request reads at least half of their
#: time: kernels go through the rest too.
_WHOLE_BYTES = 16 << 20
_WHOLE_SHARE = 0.5

#: Joining copies the samples once more. Of this many, reading them one by one is not what takes the time.
_MOST_BYTES = 64 << 20
_TOO_LARGE = "too large"
#: Roughly what an entry takes besides its samples, per segment.
_ENTRY_BYTES = 256

#: Scans segments one by one.
Scan = Callable[[ScanRequest], Iterable[SegmentAnswer]]
#: Charges a query for bytes that it holds.
Settle = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Join:
    """The samples of all segments, over all of their time, and what reading each segment cost."""

    samples: Samples
    first_ms: int
    last_ms: int
    costs: tuple[tuple[uuid.UUID, Cost], ...]

    @classmethod
    def of(cls, samples: Samples, answers: Sequence[SegmentAnswer]) -> _Join:
        times = samples.timestamps_ms
        bounds = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        costs = tuple((answer.segment_id, Cost(read_bytes=answer.cost.read_bytes, cache_hits=2)) for answer in answers)
        return cls(samples, *bounds, costs)

    def within(self, spans_ms: Sequence[tuple[int, int]]) -> list[Samples]:
        """The samples at these times, without copying any."""
        if not len(self.samples):
            return []
        parts = []
        for start_ms, end_ms in spans_ms:
            if start_ms <= self.first_ms and self.last_ms <= end_ms:
                return [self.samples]
            part, runs = choose(self.samples, np.ones(len(self.samples.tids), np.bool_), start_ms, end_ms)
            if len(part):
                parts.append(replace(part, labels=taken(self.samples.labels, runs)))
        return parts


@dataclass(frozen=True, slots=True)
class _Whole:
    """The answers of all segments of a request, the first with all samples. Those of later requests are the same."""

    answers: tuple[SegmentAnswer, ...]
    size_bytes: int

    @classmethod
    def of(cls, samples: Samples, answers: Sequence[SegmentAnswer]) -> _Whole:
        first, *others = (
            SegmentAnswer(answer.segment_id, cost=Cost(read_bytes=answer.cost.read_bytes, cache_hits=2))
            for answer in answers
        )
        cost = replace(first.cost, rows=len(samples))
        return cls((replace(first, samples=[samples], cost=cost), *others), samples.size_bytes)


class JoinedTiers:
    """Answers the part of scans that reads many segments of one tier. Safe to share between threads."""

    def __init__(self, memory: ByteLru[object]) -> None:
        self._memory = memory

    def answer(self, request: ScanRequest, scan: Scan, settle: Settle) -> tuple[list[SegmentAnswer], ScanRequest]:
        """The answers of segments that are joined, and the request for all others.

        `scan` charges for the samples that it reads; `settle` charges for those that come from memory.
        """
        if request.kind is not Kind.SAMPLES or not request.pieces:
            return [], request
        if _reads_most(request):
            answers = self._whole(request, scan, settle)
            if answers is not None:
                return list(answers), request.of_segments([])
        return self._by_tier(request, scan, settle)

    def _by_tier(self, request: ScanRequest, scan: Scan, settle: Settle) -> tuple[list[SegmentAnswer], ScanRequest]:
        by_tier: dict[int, list[SegmentObjects]] = {}
        for segment in request.segments:
            if segment.tier_s != RAW_TIER_S and not segment.hidden:
                by_tier.setdefault(segment.tier_s, []).append(segment)
        answers: list[SegmentAnswer] = []
        for segments in by_tier.values():
            if len(segments) >= _LEAST_SEGMENTS:
                answers += self._of_tier(request.of_segments(segments), scan, settle)
        if not answers:
            return [], request
        answered = {answer.segment_id for answer in answers}
        return answers, request.of_segments([each for each in request.segments if each.segment_id not in answered])

    def _whole(self, request: ScanRequest, scan: Scan, settle: Settle) -> Sequence[SegmentAnswer] | None:
        """One answer per segment, the first with all samples; None if the segments must be read one by one."""
        first, *_ = pieces = list(request.pieces)
        # Where tiers meet belongs to the name. The first and the last time that the query reads do not.
        pieces[0] = replace(first, start_ms=_ALL_TIME_MS[0])
        pieces[-1] = replace(pieces[-1], end_ms=_ALL_TIME_MS[1])
        name = request.org_id, _digest(request), request.leaf.matchers, request.leaf.reading.need, tuple(pieces)
        found = self._memory.get(name)
        if found == _TOO_LARGE:
            return None
        if found is not None:
            assert isinstance(found, _Whole)
            settle(found.size_bytes)
            return found.answers
        wide = replace(request, leaf=replace(request.leaf, start_ns=0), pieces=tuple(pieces))
        answers, rest = self._by_tier(wide, scan, settle)
        if rest.segments:
            answers += scan(rest)
        if any(answer.error is not None for answer in answers):
            return None
        answers.sort(key=lambda answer: answer.segment_id)
        parts = [part for answer in answers for part in answer.samples]
        if sum(part.size_bytes for part in parts) > _MOST_BYTES:
            self._memory.put(name, _TOO_LARGE, _ENTRY_BYTES)
            return None
        whole = _Whole.of(joined(parts, request.org_id), answers)
        self._memory.offer(name, whole, whole.size_bytes + _ENTRY_BYTES * len(answers))
        return whole.answers

    def _of_tier(self, request: ScanRequest, scan: Scan, settle: Settle) -> list[SegmentAnswer]:
        """One answer per segment, the first with all samples; none if the segments must be read one by one."""
        name = request.org_id, _digest(request), request.leaf.matchers, request.leaf.reading.need
        found = self._memory.get(name)
        if found == _TOO_LARGE:
            return []
        if found is None:
            found = self._joined(name, request, scan)
            if found is None:
                return []
        else:
            assert isinstance(found, _Join)
            settle(found.samples.size_bytes)
        parts = found.within(sorted({span for segment in request.segments for span in request.spans_ms(segment)}))
        (first, cost), *others = found.costs
        return [
            SegmentAnswer(first, parts, cost=replace(cost, rows=sum(map(len, parts)))),
            *(SegmentAnswer(each, cost=cost) for each, cost in others),
        ]

    def _joined(self, name: Hashable, request: ScanRequest, scan: Scan) -> _Join | None:
        """Reads the segments over all of their time, so that the result serves queries of other times too."""
        tier_s = request.segments[0].tier_s
        leaf = replace(request.leaf, start_ns=0)
        answers = sorted(
            scan(replace(request, leaf=leaf, pieces=(Piece(tier_s, *_ALL_TIME_MS),))),
            key=lambda answer: answer.segment_id,
        )
        if any(answer.error is not None for answer in answers):
            return None
        parts = [part for answer in answers for part in answer.samples]
        if sum(part.size_bytes for part in parts) > _MOST_BYTES:
            self._memory.put(name, _TOO_LARGE, _ENTRY_BYTES)
            return None
        samples = joined(parts, request.org_id)
        found = _Join.of(samples, answers)
        self._memory.offer(name, found, samples.size_bytes + _ENTRY_BYTES * len(answers))
        return found


def _digest(request: ScanRequest) -> bytes:
    return xxhash.xxh3_128_digest(b"".join([segment.segment_id.bytes for segment in request.segments]))


def _reads_most(request: ScanRequest) -> bool:
    """Whether it is worth joining all segments of the request."""
    size_bytes = read_ns = whole_ns = 0
    start_ns, end_ns = request.leaf.start_ns, request.leaf.end_ns
    for segment in request.segments:
        if segment.hidden:
            return False
        size_bytes += segment.size_bytes
        whole_ns += segment.end_ns - segment.start_ns
        read_ns += min(segment.end_ns, end_ns) - max(segment.start_ns, start_ns)
    return size_bytes <= _WHOLE_BYTES and read_ns >= _WHOLE_SHARE * whole_ns
