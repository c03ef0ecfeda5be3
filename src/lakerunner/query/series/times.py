"""The times of a query: its range and its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakerunner.query.series.histograms.histogram import Ints


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """The query's own times, which expressions may refer to. An instant query has step 0."""

    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def range_ms(self) -> int:
        return self.end_ms - self.start_ms

    @property
    def count(self) -> int:
        return (self.end_ms - self.start_ms) // self.step_ms + 1 if self.step_ms else 1

    def steps(self) -> Ints:
        """The time of every step."""
        return self.start_ms + self.step_ms * np.arange(self.count, dtype=np.int64)
