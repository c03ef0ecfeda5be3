"""The state of one evaluation: the query's times, its source, its limits, its annotations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakerunner.model.errors import LimitHit
from lakerunner.query.series.batch import SeriesBatch, SeriesSource
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import Reading
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.annotations import Annotations

#: The memory of a histogram, in samples of 16 bytes.
_SAMPLES_PER_HISTOGRAM = 32
#: Iterations of a loop over series between two checks of the clock: a few milliseconds of the slowest loop.
_ITERATIONS_PER_CHECK = 256
_LABEL_BYTES_PER_CHECK = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How evaluation behaves, and what a query may cost. A language ignores the options that it does not use."""

    #: How far back an instant selector looks for the latest sample.
    lookback_ms: int = 300_000
    #: The step of subqueries that do not specify one.
    default_step_ms: int = 60_000
    #: Samples read and cells computed by one query.
    max_samples: int = 50_000_000
    #: Series in any vector of a query.
    max_series: int = 1_000_000
    #: Steps of a range query.
    max_steps: int = 11_000
    #: Bytes of labels that one query may write, for all series together (label_replace, label_join).
    max_label_bytes: int = 67_108_864
    timeout_s: float = 120.0
    #: Recognise counters by their `__type__` label instead of by name suffixes.
    type_and_unit_labels: bool = False
    #: The coarsest tier that may stand for raw samples, in seconds; 0: none.
    max_tier_s: int = 86_400
    #: Whether sketches of tiers may stand for raw samples, within 1%.
    approximate: bool = False


@dataclass(slots=True)
class Evaluation:
    """One query, or some of its steps, being evaluated."""

    source: SeriesSource
    query: QueryTimes
    options: EngineOptions
    notes: Annotations
    #: Raises to stop the evaluation, for instance when the client disconnects or the server stops.
    cancelled: Callable[[], object] | None = None
    samples: int = 0
    label_bytes: int = 0
    #: The batches read so far, by matchers, start, end and reading.
    selected: dict[tuple[tuple[Matcher, ...], int, int, Reading], SeriesBatch] = field(default_factory=dict)
    #: The source is empty, to find out what it would be asked for: checks of values must not fail.
    planning: bool = False
    #: Read only the counts and sums of histograms, and determine their resets while reading.
    histogram_stats: bool = False
    _needs_buckets: bool = False
    _iterations: int = 0
    _deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline_s = time.monotonic() + self.options.timeout_s

    @contextmanager
    def reading_stats(self) -> Iterator[None]:
        """While evaluating the argument of a function that reads only counts and sums, such as histogram_count.

        An enclosing `reading_buckets` takes precedence.
        """
        before = self.histogram_stats
        self.histogram_stats = not self._needs_buckets
        yield
        self.histogram_stats = before

    @contextmanager
    def reading_buckets(self) -> Iterator[None]:
        """While evaluating the argument of a function or subquery that needs complete histograms."""
        before = self.histogram_stats, self._needs_buckets
        self.histogram_stats, self._needs_buckets = False, True
        yield
        self.histogram_stats, self._needs_buckets = before

    def check_time(self) -> None:
        """Raise if the query must stop. Called between operations, and regularly by those that may run long."""
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
        """Account for histograms that are built, each an object with its own arrays."""
        self.spend(number * _SAMPLES_PER_HISTOGRAM)

    def spend_label(self, text: str) -> None:
        """Account for a label that is written for one series, and check the time now and then."""
        before = self.label_bytes
        self.label_bytes += len(text)
        if before // _LABEL_BYTES_PER_CHECK != self.label_bytes // _LABEL_BYTES_PER_CHECK:
            self.check_time()
        if self.label_bytes > self.options.max_label_bytes:
            raise LimitHit(
                f"cannot answer the query: it writes more than {self.options.max_label_bytes:,} bytes of labels "
                "(max_label_bytes, which is fixed)",
                hint="write shorter labels, or narrow the selectors",
            )
        self.check_time_sometimes()

    def check_time_sometimes(self) -> None:
        """As `check_time`, for the iterations of a loop: nearly all calls cost nothing."""
        self._iterations += 1
        if self._iterations % _ITERATIONS_PER_CHECK == 0:
            self.check_time()

    def check_series(self, number: int) -> None:
        if number > self.options.max_series:
            raise LimitHit(
                f"cannot answer the query: a vector has {number:,} series, more than {self.options.max_series:,} "
                "(api.max_series)",
                hint="narrow the selectors",
            )
