"""A leaf is one read of a query: a signal, a time range, and conditions on the rows or series to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import METRICS
from lakerunner.model.time import MAX_TIME_NS, NS_PER_MS, TimeRange
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.reading import RAW, Need, Reading


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one selector or row scan reads, look-back and range included.

    `start_ns` is included and `end_ns` is not. Every matcher must hold. For metrics, matchers apply to the labels of a
    series; for logs and traces, they apply to a row's columns and are implied by the predicate.
    """

    signal: str
    start_ns: int
    end_ns: int
    matchers: tuple[Matcher, ...] = ()
    #: What is done with the samples, and so which tiers may stand for raw ones.
    reading: Reading = RAW
    #: The time range, once it was asked for: planning asks several times.
    _times: TimeRange | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def of_samples(cls, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> Leaf:
        """A select of metric samples. Both ends are included, as PromQL's windows see them."""
        return cls(METRICS.name, start_ms * NS_PER_MS, (end_ms + 1) * NS_PER_MS, tuple(matchers), reading)

    def moved(self, by_ms: int) -> Leaf:
        """The same read, so much later."""
        by_ns = by_ms * NS_PER_MS
        return Leaf(self.signal, self.start_ns + by_ns, self.end_ns + by_ns, self.matchers, self.reading)

    @property
    def start_ms(self) -> int:
        return self.start_ns // NS_PER_MS

    @property
    def end_ms(self) -> int:
        """The last millisecond that is included."""
        return (self.end_ns - 1) // NS_PER_MS

    @property
    def time_range(self) -> TimeRange:
        """The time range, clipped to what the index can hold: from the epoch to the year 2255."""
        if self._times is None:
            start_ns = min(max(self.start_ns, 0), MAX_TIME_NS)
            times = TimeRange(start_ns, min(max(self.end_ns, start_ns), MAX_TIME_NS))
            object.__setattr__(self, "_times", times)
            return times
        return self._times


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a leaf's time that is read from one tier, or raw. Both ends are included."""

    tier_s: int
    start_ms: int
    end_ms: int


def extent_of(leaves: Iterable[Leaf]) -> TimeRange | None:
    """The time range from the earliest to the latest read, gaps included; None if nothing is read."""
    found: TimeRange | None = None
    for leaf in leaves:
        found = leaf.time_range if found is None else found.hull(leaf.time_range)
    return found


class Pruned(NamedTuple):
    """What one rule did to the segments of one leaf. A tuple, because every plan makes five of them."""

    rule: str
    before: int
    kept: int
    pruned_bytes: int
    note: str

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "before": self.before,
            "kept": self.kept,
            "prunedBytes": self.pruned_bytes,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Explain:
    """How the segments of a leaf were chosen."""

    leaf: Leaf
    considered: int
    considered_bytes: int
    steps: tuple[Pruned, ...] = ()
    segments: int = 0
    segment_bytes: int = 0
    #: "index", or "memory" while the index does not answer.
    looked_up_in: str = "index"
    #: Which tier is read when; empty: raw samples only. And sentences that say why, and what is missing for good.
    pieces: tuple[Piece, ...] = ()
    tier_reasons: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    #: The tiers of the segments.
    tiers_s: frozenset[int] = frozenset()

    @property
    def approximate(self) -> bool:
        """Whether sketches of tiers are read instead of samples."""
        return self.leaf.reading.need is Need.SKETCH and any(self.tiers_s)

    def to_json(self) -> dict[str, Any]:
        return {
            "selector": [f"{m.name}{m.kind.value}{m.value!r}" for m in self.leaf.matchers],
            "startMs": self.leaf.start_ms,
            "endMs": self.leaf.end_ms,
            "signal": self.leaf.signal,
            "tiers": [
                {"tierSeconds": piece.tier_s, "startMs": piece.start_ms, "endMs": piece.end_ms} for piece in self.pieces
            ],
            "tierReasons": list(self.tier_reasons),
            "approximate": self.approximate,
            "lookedUpIn": self.looked_up_in,
            "considered": self.considered,
            "consideredBytes": self.considered_bytes,
            "rules": [step.to_json() for step in self.steps],
            "segments": self.segments,
            "segmentBytes": self.segment_bytes,
        }


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """The segments to read for one leaf."""

    leaf: Leaf
    segments: Sequence[Segment]
    explain: Explain

    @property
    def certain_rows(self) -> int:
        """A lower bound of the rows to read: those of segments that are read whole, if every series matches."""
        if not all(_accepts_all(matcher) for matcher in self.leaf.matchers):
            return 0
        wanted = self.leaf.time_range
        # Of tiers, part of a segment may be read.
        return sum(
            segment.row_count
            for segment in self.segments
            if not self.explain.pieces
            and wanted.start_ns <= segment.time_range.start_ns
            and segment.time_range.end_ns <= wanted.end_ns
        )


def _accepts_all(matcher: Matcher) -> bool:
    """Whether the matcher accepts every series. Every series has a metric name."""
    if matcher.kind is MatchKind.REGEX and matcher.value == ".*":
        return True
    matches_non_empty = matcher.kind is MatchKind.REGEX and matcher.value == ".+"
    not_empty = matcher.kind is MatchKind.NOT_EQUAL and matcher.value == ""
    return matcher.name == METRIC_NAME and (matches_non_empty or not_empty)
