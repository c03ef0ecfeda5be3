"""The windows of a part of a query, and which of them lie where a rule has all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
        until = steps_ns - self.offset_ns
        after = until - self.range_ns
        found: Bools = np.ones(len(steps_ns), np.bool_)
        for gap in gaps:
            found &= (until <= gap.start_ns) | (after >= gap.end_ns)
        return found
