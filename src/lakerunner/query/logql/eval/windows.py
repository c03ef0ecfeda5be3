"""The windows of a range aggregation over all steps, and the intervals that their edges cut time into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakerunner.query.logql.entries import Ints, Mask
from lakerunner.query.logql.eval.kernels import window_totals
from lakerunner.query.series.histograms.histogram import Floats

#: Times and durations are clipped to this, so that their sums fit into 64 bits.
_FARTHEST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Windows:
    """The window of step s is (after[s], until[s]]. It consists of the intervals from first[s] up to last[s]."""

    after: Ints
    until: Ints
    #: The edges of all windows, ascending. Interval j is (edges[j], edges[j + 1]].
    edges: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, steps_ns: Ints, range_ns: int, offset_ns: int) -> Windows:
        steps = np.clip(steps_ns, -_FARTHEST_NS, _FARTHEST_NS)
        until = steps - _clipped(offset_ns)
        after = steps - _clipped(offset_ns + range_ns)
        edges, places = np.unique(np.concatenate([after, until]), return_inverse=True)
        return cls(after, until, edges, places[: len(after)], places[len(after) :])

    @staticmethod
    def extent(steps_ns: Ints, range_ns: int, offset_ns: int) -> tuple[int, int]:
        """The first time that a window of the steps, which ascend, includes, and the first after the last window."""
        first, last = (min(max(int(each), -_FARTHEST_NS), _FARTHEST_NS) for each in (steps_ns[0], steps_ns[-1]))
        return first - _clipped(offset_ns + range_ns) + 1, last - _clipped(offset_ns) + 1

    @property
    def intervals(self) -> int:
        return max(len(self.edges) - 1, 0)

    @property
    def most_intervals(self) -> int:
        """Of any window."""
        return int((self.last - self.first).max())

    @property
    def start_ns(self) -> int:
        """The first time that a window includes."""
        return int(self.after[0]) + 1

    @property
    def end_ns(self) -> int:
        """The first time after the last window."""
        return int(self.until[-1]) + 1

    def uncovered(self) -> Mask:
        """The intervals that no window includes: those between windows that are narrower than the step."""
        depth = np.zeros(len(self.edges), np.int64)
        np.add.at(depth, self.first, 1)
        np.add.at(depth, self.last, -1)
        bare: Mask = np.cumsum(depth)[: self.intervals] == 0
        return bare

    def totals(self, per_interval: Ints) -> Floats:
        """Sums per window, from sums per interval: one row per series. They are exact up to 2^53."""
        out = np.empty((len(per_interval), len(self.until)), np.float64)
        window_totals(per_interval, self.first, self.last, out)
        return out


def _clipped(duration_ns: int) -> int:
    return min(max(duration_ns, -_FARTHEST_NS), _FARTHEST_NS)
