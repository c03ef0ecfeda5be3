"""The windows of a part of a query, and which of them lie where a rule has all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.query.plan.coverage import Gap
from lakerunner.query.series.histograms.histogram import Ints

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Windows:
    """The window of step t is (t - offset - range, t - offset]."""

    range_ns: int
    offset_ns: int

    def extent(self, steps_ns: Ints) -> tuple[int, int]:
        return int(steps_ns[0]) - self.offset_ns - self.range_ns, int(steps_ns[-1]) - self.offset_ns

    def covered(self, steps_ns: Ints, gaps: Sequence[Gap]) -> Bools:
        """The steps whose windows meet no gap."""
        if not gaps:
            return np.ones(len(steps_ns), np.bool_)
        until = steps_ns - self.offset_ns
        after = until - self.range_ns
        found: Bools = np.ones(len(steps_ns), np.bool_)
        for gap in gaps:
            found &= (until <= gap.start_ns) | (after >= gap.end_ns)
        return found


_TWICE = "several segments have rows of that time, and one that was sent twice would count twice"


def overlaps(signal: str, metric: str, segments: Sequence[Segment], after_ns: int, until_ns: int) -> list[Gap]:
    """Where segments overlap. A query counts a span or sample once that lies in two of them; a rule counts it twice.

    Within a segment, ingest and compaction report rows that lie in it twice as holes. Of metrics, only segments that
    may have the metric of the rule matter.
    """
    ranges = sorted(
        (segment.time_range.start_ns, segment.time_range.end_ns)
        for segment in segments
        if segment.signal == signal
        and metric in segment.pruning.values.get("metric_name", (metric,))
        and segment.tier_s == RAW_TIER_S
        and segment.time_range.start_ns <= until_ns
        and segment.time_range.end_ns > after_ns
    )
    found: list[Gap] = []
    latest_ns = 0
    for start_ns, end_ns in ranges:
        if start_ns < latest_ns:
            common_ns = min(end_ns, latest_ns)
            if found and found[-1].end_ns >= start_ns - 1:
                found[-1] = Gap(found[-1].start_ns, max(found[-1].end_ns, common_ns - 1), _TWICE)
            else:
                found.append(Gap(start_ns - 1, common_ns - 1, _TWICE))
        latest_ns = max(latest_ns, end_ns)
    return found
