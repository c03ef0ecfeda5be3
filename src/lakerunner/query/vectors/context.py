"""What one evaluation carries along: the query's times, its source, its limits, what it has to say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakerunner.model.errors import LimitHit
from lakerunner.query.series.batch import SeriesBatch, SeriesSource
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations

#: What a histogram weighs beside a sample of 16 bytes.
_SAMPLES_PER_HISTOGRAM = 32
#: Turns of a loop over series between two looks at the clock: some milliseconds of the slowest.
_TURNS_PER_LOOK = 256
_LABEL_BYTES_PER_LOOK = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine behaves, and what a query may cost."""

    #: How far back an instant selector looks for the latest sample.
    lookback_ms: int = 300_000
    #: The step of subqueries that give none.
    default_step_ms: int = 60_000
    #: Samples read and cells made, all nodes together.
    max_samples: int = 50_000_000
    #: Series in any one vector.
    max_series: int = 1_000_000
    #: Steps of a range query.
    max_steps: int = 11_000
    #: Bytes of labels that label_replace and label_join may write, all series together.
    max_label_bytes: int = 67_108_864
    timeout_s: float = 120.0
    #: Whether `__type__` labels, rather than name suffixes, say what is a counter.
    type_and_unit_labels: bool = False


@dataclass(slots=True)
class Evaluation:
    source: SeriesSource
    query: QueryTimes
    options: EngineOptions
    notes: Annotations
    #: Raises to stop the evaluation: the client has gone, the server stops.
    cancelled: Callable[[], None] | None = None
    samples: int = 0
    label_bytes: int = 0
    #: What was read already, by what was asked for.
    selected: dict[tuple[tuple[Matcher, ...], int, int], SeriesBatch] = field(default_factory=dict)
    #: Nothing is read: what depends on values must not stop the evaluation.
    planning: bool = False
    #: Only counts and sums of histograms are asked for, so that resets are worked out while reading.
    histogram_stats: bool = False
    _stats_barred: bool = False
    _turns: int = 0
    _deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline_s = time.monotonic() + self.options.timeout_s

    @contextmanager
    def reading_stats(self) -> Iterator[None]:
        """Within: the argument of histogram_count and its like, unless something around it needs the buckets."""
        before = self.histogram_stats
        self.histogram_stats = not self._stats_barred
        yield
        self.histogram_stats = before

    @contextmanager
    def reading_buckets(self) -> Iterator[None]:
        """Within: the argument of a function or subquery that needs whole histograms."""
        before = self.histogram_stats, self._stats_barred
        self.histogram_stats, self._stats_barred = False, True
        yield
        self.histogram_stats, self._stats_barred = before

    def check_time(self) -> None:
        """Raise when the query must stop. Called between nodes, and every so often by nodes that may run long."""
        if self.cancelled is not None:
            self.cancelled()
        if time.monotonic() > self._deadline_s:
            raise LimitHit(
                f"cannot answer the query: it took longer than {self.options.timeout_s:g} s",
                hint="narrow the selectors or the time range",
            )

    def spend(self, samples: int) -> None:
        self.samples += samples
        if self.samples > self.options.max_samples:
            raise LimitHit(
                f"cannot answer the query: it needs more than {self.options.max_samples:,} samples (api.max_samples)",
                hint="narrow the selectors, shorten the range or widen the step",
            )

    def spend_histograms(self, number: int) -> None:
        """Histograms that are made, each an object with arrays of its own."""
        self.spend(number * _SAMPLES_PER_HISTOGRAM)

    def spend_label(self, text: str) -> None:
        """A label that is written for one series. It is looked here whether the query must stop."""
        before = self.label_bytes
        self.label_bytes += len(text)
        if before // _LABEL_BYTES_PER_LOOK != self.label_bytes // _LABEL_BYTES_PER_LOOK:
            self.check_time()
        if self.label_bytes > self.options.max_label_bytes:
            raise LimitHit(
                f"cannot answer the query: it writes more than {self.options.max_label_bytes:,} bytes of labels "
                "(max_label_bytes, which is fixed)",
                hint="write shorter labels, or narrow the selectors",
            )
        self.check_time_sometimes()

    def check_time_sometimes(self) -> None:
        """As `check_time`, for the turns of a loop: nearly all of them cost nothing."""
        self._turns += 1
        if self._turns % _TURNS_PER_LOOK == 0:
            self.check_time()

    def check_series(self, number: int) -> None:
        if number > self.options.max_series:
            raise LimitHit(
                f"cannot answer the query: a vector has {number:,} series, more than {self.options.max_series:,} "
                "(api.max_series)",
                hint="narrow the selectors",
            )
