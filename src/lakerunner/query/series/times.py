"""The times of a query: its range and its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.series.histograms.histogram import Ints


@dataclass(frozen=True, slots=True)
class QueryTimes:
    """The query's own times, which expressions may refer to. An instant query has step 0.

    Languages that know nanoseconds use `start_ns` and `end_ns`, and add `start_rest_ns` to every step.
    """

    start_ms: int
    end_ms: int
    step_ms: int
    #: What the start and the end have beyond whole milliseconds.
    start_rest_ns: int = 0
    end_rest_ns: int = 0

    @classmethod
    def of_ns(cls, start_ns: int, end_ns: int, step_ms: int) -> QueryTimes:
        """
        >>> QueryTimes.of_ns(1_500_001, 2_000_000, 0).start_ns
        1500001
        """
        start_ms, start_rest_ns = divmod(start_ns, NS_PER_MS)
        end_ms, end_rest_ns = divmod(end_ns, NS_PER_MS)
        return cls(start_ms, end_ms, step_ms, start_rest_ns, end_rest_ns)

    @property
    def start_ns(self) -> int:
        return self.start_ms * NS_PER_MS + self.start_rest_ns

    @property
    def end_ns(self) -> int:
        return self.end_ms * NS_PER_MS + self.end_rest_ns

    @property
    def range_ms(self) -> int:
        return self.end_ms - self.start_ms

    @property
    def count(self) -> int:
        return (self.end_ns - self.start_ns) // (self.step_ms * NS_PER_MS) + 1 if self.step_ms else 1

    def steps(self) -> Ints:
        """The time of every step, in whole milliseconds."""
        return self.start_ms + self.step_ms * np.arange(self.count, dtype=np.int64)


class TooManySteps(LimitHit):
    """A range query has more steps than allowed. Prometheus' API takes that for a bad parameter."""


def check_steps(times: QueryTimes, max_steps: int) -> None:
    """Refuse times that are no range, or a range of too many steps."""
    if times.step_ms < 0 or (times.step_ms == 0 and times.start_ms != times.end_ms):
        raise BadInput("cannot run a range query: its step is not positive")
    if times.end_ns < times.start_ns:
        raise BadInput('cannot run a range query: "end" is before "start"')
    # As in Prometheus and Loki, the time of the start is no step.
    if times.count - 1 > max_steps:
        raise TooManySteps(
            f"cannot run a range query of {times.count - 1:,} steps: more than {max_steps:,} (api.max_steps)",
            hint=f"exceeded maximum resolution of {max_steps:,} points per timeseries. Try decreasing the query "
            "resolution (?step=XX)",
        )
