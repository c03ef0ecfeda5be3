"""The data sets loaded into every server, generated from a seed: the same on every machine and in every run."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lakerunner.model.labels import METRIC_NAME, LabelSet

HOUR_MS = 3_600_000
#: 2026-11-15 18:00 UTC: a whole hour, so that Prometheus' two-hour blocks and our segments end at the same time.
END_MS = 1_794_765_600_000
#: Start of the counters: before the first sample, so that it is no reset in any window.
COUNTING_SINCE_MS = END_MS - 24 * HOUR_MS

JOBS, ZONES, PODS_AN_INSTANCE = 16, 3, 4
#: One sample in this many is the first after a restart.
_RESET_EVERY = 1_000
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NATIVE_SCHEMA, NATIVE_BUCKETS, ZERO_THRESHOLD = 3, 40, 2.0**-128

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    #: Buckets with explicit bounds: in the lake one histogram per sample, as ingest stores OTLP; elsewhere one series
    #: per bucket.
    CLASSIC = "classic histogram"
    NATIVE = "native histogram"


@dataclass(frozen=True, slots=True)
class MetricSet:
    """One metric. Its series are scraped every `step_ms`, each instance at its own offset."""

    name: str
    metric: str
    kind: Kind
    series: int
    hours: int
    step_ms: int
    #: Only for cases that compare Lakerunner with itself.
    lake_only: bool = False

    @property
    def points(self) -> int:
        return self.hours * HOUR_MS // self.step_ms

    @property
    def start_ms(self) -> int:
        return END_MS - self.hours * HOUR_MS

    def labels(self) -> list[LabelSet]:
        return [_labels(self.metric, number) for number in range(self.series)]

    def offsets_ms(self) -> Ints:
        """Return the offset of each series within the scrape interval."""
        return np.arange(self.series) // PODS_AN_INSTANCE * 7_919 % self.step_ms

    def times_ms(self, first: int, last: int) -> Ints:
        """Return the times of points `first` to `last` (exclusive), one row per series."""
        return (self.start_ms + self.offsets_ms())[:, None] + (np.arange(first, last) * self.step_ms)[None, :]


SETS = (
    MetricSet("long", "requests_total", Kind.COUNTER, 10_000, 6, 10_000),
    MetricSet("gauge", "memory_bytes", Kind.GAUGE, 10_000, 6, 10_000),
    MetricSet("wide", "events_total", Kind.COUNTER, 100_000, 1, 60_000),
    MetricSet("classic", "latency_seconds", Kind.CLASSIC, 500, 6, 30_000),
    MetricSet("native", "size_bytes", Kind.NATIVE, 2_000, 1, 60_000),
    MetricSet("grown 1", "grown_1_total", Kind.COUNTER, 5_000, 1, 10_000, lake_only=True),
    MetricSet("grown 2", "grown_2_total", Kind.COUNTER, 10_000, 1, 10_000, lake_only=True),
    MetricSet("grown 4", "grown_4_total", Kind.COUNTER, 20_000, 1, 10_000, lake_only=True),
)  # fmt: skip


def sets(quick: bool) -> tuple[MetricSet, ...]:
    return tuple(replace(metric, series=metric.series // 20) for metric in SETS) if quick else SETS


def _labels(metric: str, number: int) -> LabelSet:
    instance = number // PODS_AN_INSTANCE
    return LabelSet.of(
        {
            METRIC_NAME: metric,
            "job": f"job-{instance % JOBS}",
            "instance": f"10.{instance >> 16}.{instance >> 8 & 255}.{instance & 255}:8080",
            "zone": f"zone-{instance % ZONES}",
            "pod": f"pod-{number}",
        }
    )


@dataclass(frozen=True, slots=True)
class Histograms:
    """Non-cumulative bucket counts, as series by points by buckets, and the sums of the observations."""

    counts: Ints
    sums: Floats


def values_of(metric: MetricSet) -> Floats:
    """Return the samples of a counter or gauge, as series by points."""
    random, shape = _random(metric), (metric.series, metric.points)
    if metric.kind is Kind.COUNTER:
        return _counted(random.integers(0, 50, shape, np.int32), _resets(random, shape)).astype(np.float64)
    walk = np.cumsum(random.integers(-400, 401, shape, np.int32), axis=1, dtype=np.int64)
    return (random.integers(1, 1 << 20, (metric.series, 1)) * 4096 + walk * 128).astype(np.float64)


def histograms_of(metric: MetricSet) -> Histograms:
    """Return the samples of histograms. Sums are multiples of 1/4, so that they are exact in any order."""
    random, shape = _random(metric), (metric.series, metric.points)
    buckets = len(BOUNDS) + 1 if metric.kind is Kind.CLASSIC else NATIVE_BUCKETS
    # Observations cluster around a bucket that differs by series.
    middle = random.uniform(0.3, 0.7, (metric.series, 1, 1)) * buckets
    mean = 20 * np.exp(-(((np.arange(buckets) - middle) / buckets * 4) ** 2))
    more = random.poisson(np.broadcast_to(mean, (*shape, buckets))).astype(np.int32)
    resets = _resets(random, shape)
    observed = np.sum(more * np.arange(1, buckets + 1), axis=2)
    return Histograms(_counted(more, resets[:, :, None]), _counted(observed, resets) / 4)


def first_bucket(number: int) -> int:
    """Return the index of a native histogram's first bucket, which differs between series."""
    return -10 + number % 4


def _random(metric: MetricSet) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(metric.metric.encode()))


def _resets(random: np.random.Generator, shape: Sequence[int]) -> npt.NDArray[np.bool_]:
    first: npt.NDArray[np.bool_] = random.integers(0, _RESET_EVERY, shape, np.int32) == 0
    return first


def _counted(more: npt.NDArray[np.int32], resets: npt.NDArray[np.bool_]) -> Ints:
    """Return running totals along the points, restarted at every reset."""
    total = np.cumsum(more, axis=1, dtype=np.int64)
    before = np.where(resets, total - more, 0)
    return total - np.maximum.accumulate(before, axis=1)
