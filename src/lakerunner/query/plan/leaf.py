"""A plan: what each selector needs, which segments hold it, and how that was found."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakerunner.model.labels import METRIC_NAME
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signals.metrics import METRICS
from lakerunner.model.time import NS_PER_MS, TimeRange
from lakerunner.query.series.matchers import Matcher, MatchKind

#: The year 2255. Queries may name later times, but as nanoseconds those are beyond what the index can hold.
_MAX_MS = 9_000_000_000_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """One selector: its matchers, and all the time that it looks at (look-back and range included), both ends too."""

    org_id: uuid.UUID
    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int
    signal: str = METRICS.name
    tier_s: int = RAW_TIER_S

    @property
    def time_range(self) -> TimeRange:
        """In the index's terms: half-open nanoseconds, nothing before the epoch."""
        start_ms = min(max(self.start_ms, 0), _MAX_MS)
        end_ms = min(max(self.end_ms + 1, start_ms), _MAX_MS)
        return TimeRange(start_ms * NS_PER_MS, end_ms * NS_PER_MS)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one rule did to the segments of one leaf."""

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
    """How a leaf came to its segments."""

    leaf: Leaf
    considered: int
    considered_bytes: int
    steps: tuple[Pruned, ...] = ()
    segments: int = 0
    segment_bytes: int = 0
    #: "index", or "memory" while the index does not answer.
    looked_up_in: str = "index"

    def to_json(self) -> dict[str, Any]:
        return {
            "selector": [f"{m.name}{m.kind.value}{m.value!r}" for m in self.leaf.matchers],
            "startMs": self.leaf.start_ms,
            "endMs": self.leaf.end_ms,
            "signal": self.leaf.signal,
            "tierSeconds": self.leaf.tier_s,
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
        """Rows that will be read, whatever the series are: those of segments that are wanted whole."""
        if not all(_accepts_all(matcher) for matcher in self.leaf.matchers):
            return 0
        wanted = self.leaf.time_range
        return sum(
            segment.row_count
            for segment in self.segments
            if wanted.start_ns <= segment.time_range.start_ns and segment.time_range.end_ns <= wanted.end_ns
        )


def _accepts_all(matcher: Matcher) -> bool:
    """Whether no series is left out by it. Every series has a name."""
    if matcher.kind is MatchKind.REGEX and matcher.value == ".*":
        return True
    named = matcher.kind is MatchKind.REGEX and matcher.value == ".+"
    not_nameless = matcher.kind is MatchKind.NOT_EQUAL and matcher.value == ""
    return matcher.name == METRIC_NAME and (named or not_nameless)
