"""Batches of series, and the source that returns them: the interface between a query language and the lake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.model.samples import STALE_BITS
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from lakerunner.query.series.rollup import Rollup

#: The stale marker as a number. Comparing it needs its bits.
STALE = np.array([STALE_BITS], dtype=np.uint64).view(np.float64)[0]


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """Samples of many series, one after another: series i has the samples `offsets[i]` to `offsets[i + 1]`.

    Times ascend within a series, and no series occurs twice. Stale markers are samples.
    """

    labels: Sequence[LabelSet]
    offsets: Ints
    timestamps_ms: Ints
    values: Floats
    #: Start of the interval that a cumulative or delta sample covers; 0 if unknown. None: unknown for all samples.
    start_timestamps_ms: Ints | None = None
    histograms: HistogramColumn | None = None
    #: False if no float is a stale marker, so that readers can skip the check.
    may_be_stale: bool = True
    #: What the samples stand for, if some are rows of tiers. None: each stands for itself.
    rollup: Rollup | None = None

    @classmethod
    def empty(cls) -> SeriesBatch:
        no_times = np.zeros(0, dtype=np.int64)
        return cls([], np.zeros(1, dtype=np.int64), no_times, np.zeros(0))


class SeriesSource(Protocol):
    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW) -> SeriesBatch:
        """All series that every matcher accepts, with their samples from `start_ms` to `end_ms`, both included.

        The reading says which tiers may stand for raw samples.
        """
        ...
