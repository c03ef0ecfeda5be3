"""The times of a query: its range and its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import BadInput, LimitHit
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


class TooManySteps(LimitHit):
    """A range query has more steps than allowed. Prometheus' API takes that for a bad parameter."""


def check_steps(times: QueryTimes, max_steps: int) -> None:
    """Refuse times that are no range, or a range of too many steps."""
    if times.step_ms < 0 or (times.step_ms == 0 and times.start_ms != times.end_ms):
        raise BadInput("cannot run a range query: its step is not positive")
    if times.end_ms < times.start_ms:
        raise BadInput('cannot run a range query: "end" is before "start"')
    if times.count > max_steps:
        raise TooManySteps(
            f"cannot run a range query of {times.count:,} steps: more than {max_steps:,} (api.max_steps)",
            hint=f"exceeded maximum resolution of {max_steps:,} points per timeseries. Try decreasing the query "
            "resolution (?step=XX)",
        )
