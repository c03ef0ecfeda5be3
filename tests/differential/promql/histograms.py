"""Random native histograms, exponential and with custom buckets."""

from __future__ import annotations

import random

import numpy as np

from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram
from tests.differential.promql.samples import quarter


def exponential(
    chance: random.Random, schema: int, negative: bool = True, zero_threshold: float = 0.015625, pos: bool = True
) -> Histogram:
    # No bucket reaches into the zero bucket: what then comes out is not defined, and Prometheus shows as much.
    above = _buckets(chance, chance.randint(-2, 2)) if pos else {}
    below = _buckets(chance, 0) if negative else {}
    zero = float(chance.randint(0, 2))
    return Histogram(
        schema=schema,
        count=sum(above.values()) + sum(below.values()) + zero,
        sum=quarter(chance, -5, 30),
        zero_threshold=zero_threshold,
        zero_count=zero,
        pos_index=np.array(list(above), dtype=np.int64),
        pos_count=np.array(list(above.values()), dtype=np.float64),
        neg_index=np.array(list(below), dtype=np.int64),
        neg_count=np.array(list(below.values()), dtype=np.float64),
    )


def custom(chance: random.Random, bounds: tuple[float, ...] = (1.0, 5.0)) -> Histogram:
    counts = {i: float(chance.randint(1, 5)) for i in range(len(bounds) + 1) if chance.random() < 0.8}
    return Histogram(
        schema=CUSTOM_SCHEMA,
        count=sum(counts.values()),
        sum=quarter(chance, 0, 30),
        pos_index=np.array(list(counts), dtype=np.int64),
        pos_count=np.array(list(counts.values()), dtype=np.float64),
        bounds=bounds,
    )


def full(chance: random.Random) -> Histogram:
    """Always the same buckets, none of them empty: with a sum of NaN, quantiles depend on the layout of the chunk."""
    counts = np.array([chance.randint(1, 6) for _ in range(7)], dtype=np.float64)
    return Histogram(
        schema=0,
        count=float(counts.sum()),
        sum=quarter(chance, -5, 30),
        zero_threshold=0.015625,
        zero_count=counts[0],
        pos_index=np.arange(4, dtype=np.int64),
        pos_count=counts[1:5],
        neg_index=np.arange(2, dtype=np.int64),
        neg_count=counts[5:],
    )


def _buckets(chance: random.Random, first: int) -> dict[int, float]:
    """At least one: a chunk gives a bucket that some of its histograms have to all of them, and a histogram without
    negative buckets is not treated as one with empty ones."""
    return {first + i: float(chance.randint(1, 6)) for i in range(5) if i == 2 or chance.random() < 0.7}
