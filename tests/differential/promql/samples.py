"""Samples on their way into both engines, and how series are made of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram

#: A multiple of two hours, so that no chunk is cut for the block's sake within the samples.
START_MS = 1_599_998_400_000
SCRAPE_MS = 15_000
SCRAPES = 120
END_MS = START_MS + SCRAPES * SCRAPE_MS


@dataclass(frozen=True, slots=True)
class Sample:
    time_ms: int
    #: A histogram, or a float, stale markers included.
    value: float | Histogram
    #: 0 where unknown.
    start_ms: int = 0


Series = dict[LabelSet, list[Sample]]


def put(
    out: Series,
    labels: dict[str, str],
    name: str,
    points: Sequence[tuple[int, float | Histogram]],
    starts: Sequence[int] = (),
    at_ms: bool = False,
) -> None:
    """Points are (number of the scrape, value), or with `at_ms` (milliseconds, value)."""
    times = [at if at_ms else START_MS + at * SCRAPE_MS for at, _ in points]
    samples = [
        Sample(time_ms, value, start_ms)
        for time_ms, (_, value), start_ms in zip(times, points, starts or [0] * len(times), strict=True)
    ]
    if samples:
        out[LabelSet.of(labels | {"__name__": name})] = samples


def deltas(scrapes: Sequence[int]) -> list[int]:
    """Start timestamps of a delta series: each sample starts where the last one ended."""
    return [START_MS + before * SCRAPE_MS for before in [-1, *scrapes][: len(scrapes)]]


def scrapes(chance: random.Random, missing: float = 0.05) -> list[int]:
    return [i for i in range(SCRAPES) if chance.random() >= missing]


def quarter(chance: random.Random, low: int, high: int) -> float:
    return chance.randint(low * 4, high * 4) / 4
