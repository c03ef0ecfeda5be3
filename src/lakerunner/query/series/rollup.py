"""What rows of tiers stand for: a weight per row, and the aggregates of a bucket beside its last sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.reading import Need


@dataclass(frozen=True, slots=True)
class Rollup:
    """Weights and aggregates, one per sample of a batch.

    The row of a bucket's last sample stands for all `count` samples of the bucket and has their aggregates. Other rows
    that a tier keeps have count 0. A raw sample has count 1 and is its own aggregate.

    The aggregates depend on the need. RATE: the corrections for counter resets inside the bucket, and 1 where they are
    known; where they are not, every reset is visible between two rows. SUM: the sum, and what rounding it lost. MIN,
    MAX: the extreme. COUNT: none.
    """

    need: Need
    count: Ints
    aggregates: tuple[Floats, ...]
    #: False if a bucket lacks an aggregate that the need asks for: then only raw samples will do.
    derivable: bool = True

    @property
    def size_bytes(self) -> int:
        return 8 * len(self.count) * (1 + len(self.aggregates))

    def at(self, where: Ints | npt.NDArray[np.bool_]) -> Rollup:
        """Of some samples, by index or mask."""
        return Rollup(self.need, self.count[where], tuple(each[where] for each in self.aggregates), self.derivable)


def rollup_of_raw(need: Need, values: Floats) -> Rollup:
    """Of raw samples, for where they meet rows of tiers."""
    return Rollup(need, np.ones(len(values), np.int64), aggregates_of_raw(need, values))


def aggregates_of_raw(need: Need, values: Floats) -> tuple[Floats, ...]:
    if need is Need.RATE:
        return np.zeros(len(values)), np.zeros(len(values))
    if need is Need.SUM:
        return values, np.zeros(len(values))
    return (values,) if need in (Need.MIN, Need.MAX) else ()
