"""Keeps segments of the tier that is read at their time. `plan/tiers.py` has chosen it."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.time import NS_PER_MS, TimeRange
from lakerunner.query.plan.leaf import Piece


def by_tier(segments: Sequence[Segment], pieces: Sequence[Piece]) -> tuple[Sequence[Segment], str]:
    """The segments of each piece's tier and time. Without pieces, raw segments."""
    if not pieces:
        return [segment for segment in segments if segment.tier_s == RAW_TIER_S], "raw"
    spans: dict[int, list[TimeRange]] = {}
    for piece in pieces:
        # Nothing is stored before the epoch.
        start_ms, end_ms = max(piece.start_ms, 0), max(piece.end_ms + 1, 0)
        spans.setdefault(piece.tier_s, []).append(TimeRange(start_ms * NS_PER_MS, end_ms * NS_PER_MS))
    kept = [
        segment for segment in segments if any(map(segment.time_range.overlaps, spans.get(segment.tier_s, ())))
    ]  # fmt: skip
    return kept, " and ".join("raw" if tier_s == RAW_TIER_S else f"tier {tier_s} s" for tier_s in sorted(spans))
