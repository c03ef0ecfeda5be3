"""Where in time the series of a rule are complete, as one snapshot of the index knows it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.series.histograms.histogram import Ints

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CoverageWant:
    """A question to the index: where from one time to another lacks a version of a rule rows? Open at the start."""

    rule_id: int
    version: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of time in which the rule does not know all rows. Open at the start, closed at the end."""

    start_ns: int
    end_ns: int
    reason: str

    @property
    def sentence(self) -> str:
        return f"raw rows from {_time(self.start_ns)} to {_time(self.end_ns)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a part of a query: the one of step t is (t - offset - range, t - offset]."""

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


def _time(time_ns: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(time_ns // NS_PER_S, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ns // NS_PER_MS} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
