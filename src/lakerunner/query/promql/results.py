"""What a query gives back: typed, columnar, with the warnings and infos beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.histogram import Floats, Histogram, Ints


@dataclass(frozen=True, slots=True)
class ScalarResult:
    time_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class StringResult:
    time_ms: int
    value: str


@dataclass(frozen=True, slots=True)
class VectorResult:
    """One sample per series, in the order of the answer. Where `histograms[i]` is set, it is the value."""

    time_ms: int
    labels: list[LabelSet]
    values: Floats
    histograms: list[Histogram | None]


@dataclass(frozen=True, slots=True)
class Series:
    labels: LabelSet
    timestamps_ms: Ints
    values: Floats
    histogram_timestamps_ms: Ints
    histograms: list[Histogram]


@dataclass(frozen=True, slots=True)
class MatrixResult:
    """Series sorted by their labels."""

    series: list[Series]

    def __iter__(self) -> Iterator[Series]:
        return iter(self.series)

    @property
    def samples(self) -> int:
        return sum(len(one.timestamps_ms) + len(one.histograms) for one in self.series)


Value = ScalarResult | StringResult | VectorResult | MatrixResult

NO_TIMES: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class QueryResult:
    value: Value
    warnings: list[str]
    infos: list[str]
    #: Samples read and cells computed.
    samples: int
