"""Skew: rows whose event time cannot be right, or whose sender's clock is wrong. They land, and are counted."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY

#: Older than this is a backfill or a clock that was never set; both deserve to be seen.
PAST_NS = 366 * NS_PER_DAY
#: A day ahead is no time zone and no drift.
FUTURE_NS = NS_PER_DAY


def skewed_rows(segments: Sequence[Segment], now_ns: int) -> int:
    """Rows of segments that lie wholly outside. A segment is one hour of event time, so that is near enough exact."""
    return sum(
        segment.row_count
        for segment in segments
        if segment.time_range.end_ns <= now_ns - PAST_NS or segment.time_range.start_ns >= now_ns + FUTURE_NS
    )
