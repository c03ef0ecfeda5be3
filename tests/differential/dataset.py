"""The samples that both engines get: every kind of series that a query may meet, small enough to load in a second.

Values are multiples of a quarter, so that sums are exact and do not depend on the order of the series.
"""

from __future__ import annotations

import math
import random

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.histogram import CUSTOM_SCHEMA, Histogram, ResetHint
from lakerunner.query.promql.histogram_math import add
from lakerunner.query.promql.memory_source import MemorySource
from lakerunner.query.promql.source import STALE
from tests.differential.otlp import ZERO_THRESHOLD
from tests.differential.samples import Sample, Series
from tests.query.promqltest.loading import stored_hints

#: A multiple of two hours, so that no chunk is cut for the block's sake within the samples.
START_MS = 1_599_998_400_000
SCRAPE_MS = 15_000
SCRAPES = 120
END_MS = START_MS + SCRAPES * SCRAPE_MS

_BOUNDS = ("0.1", "0.5", "1", "5", "+Inf")


def make_dataset(seed: int) -> Series:
    chance = random.Random(seed)
    out: Series = {}
    for job in ("api", "db"):
        for instance in ("i0", "i1", "i2"):
            labels = {"job": job, "instance": instance}
            _add_floats(out, labels, chance)
            _add_classic(out, labels, chance)
            _add_native(out, labels, chance)
            # Their version changes half way through, as after a deployment.
            for version, times in (("1", range(60)), ("2", range(60, SCRAPES))):
                _put(out, labels | {"version": version, "cluster": f"c{job}"}, "target_info", [(i, 1.0) for i in times])
    return out


def memory_source(series: Series) -> MemorySource:
    source = MemorySource()
    for labels, samples in series.items():
        histograms = [sample.value if isinstance(sample.value, Histogram) else None for sample in samples]
        source.add(
            labels,
            [sample.time_ms for sample in samples],
            [0.0 if isinstance(sample.value, Histogram) else sample.value for sample in samples],
            [sample.start_ms for sample in samples],
            stored_hints(histograms) if any(histograms) else None,
        )
    return source


def _put(
    out: Series, labels: dict[str, str], name: str, points: list[tuple[int, float | Histogram]], delta: bool = False
) -> None:
    """Points are (number of the scrape, value); a delta series says that each sample starts where the last ended."""
    samples, before_ms = [], START_MS - SCRAPE_MS
    for i, value in points:
        time_ms = START_MS + i * SCRAPE_MS
        samples.append(Sample(time_ms, value, before_ms if delta else 0))
        before_ms = time_ms
    out[LabelSet.of(labels | {"__name__": name})] = samples


def _scrapes(chance: random.Random, missing: float = 0.05) -> list[int]:
    return [i for i in range(SCRAPES) if chance.random() >= missing]


def _quarter(chance: random.Random, low: int, high: int) -> float:
    return chance.randint(low * 4, high * 4) / 4


def _counter(chance: random.Random, scrapes: list[int], reset: float = 0.03) -> list[tuple[int, float | Histogram]]:
    value, points = 0.0, []
    for i in scrapes:
        value = 0.0 if chance.random() < reset else value + _quarter(chance, 0, 9)
        points.append((i, value))
    return points


def _add_floats(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    for code in ("200", "500"):
        _put(out, labels | {"code": code}, "requests_total", _counter(chance, _scrapes(chance)))
    _put(out, labels, "deltas_total", [(i, _quarter(chance, 0, 9)) for i in _scrapes(chance, 0.1)], delta=True)
    _put(out, labels, "temperature", [(i, _quarter(chance, -20, 40)) for i in _scrapes(chance)])
    # Comes and goes: sparse, and then gone for longer than the look-back.
    _put(out, labels, "sparse", [(i, _quarter(chance, 0, 5)) for i in _scrapes(chance, 0.9)])
    flapping = [(i, STALE if chance.random() < 0.15 else float(chance.randint(0, 3))) for i in _scrapes(chance, 0.2)]
    _put(out, labels, "flapping", flapping)
    odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e-300]
    weird = [(i, chance.choice(odd) if chance.random() < 0.2 else _quarter(chance, -3, 3)) for i in _scrapes(chance)]
    _put(out, labels, "weird", weird)
    _put(out, labels | {"zone": labels["instance"][1]}, "constant", [(i, 1.0) for i in range(SCRAPES)])


def _add_classic(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    scrapes = _scrapes(chance)
    counts = dict.fromkeys(_BOUNDS, 0.0)
    columns: dict[str, list[tuple[int, float | Histogram]]] = {bound: [] for bound in _BOUNDS}
    for i in scrapes:
        if chance.random() < 0.03:
            counts = dict.fromkeys(_BOUNDS, 0.0)
        more = 0.0
        for bound in _BOUNDS:
            more += chance.randint(0, 3)
            counts[bound] += more
            columns[bound].append((i, counts[bound]))
    for bound in _BOUNDS:
        _put(out, labels | {"le": bound}, "latency_bucket", columns[bound])
    _put(out, labels, "latency_count", list(columns["+Inf"]))
    _put(out, labels, "latency_sum", _counter(chance, scrapes))


def _add_native(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    negative = chance.random() < 0.5
    _put(out, labels, "size", _growing(chance, custom=False))
    _put(out, labels, "custom", _growing(chance, custom=True))
    deltas = [(i, _exponential(chance, 0, negative, ZERO_THRESHOLD)) for i in _scrapes(chance, 0.5)]
    _put(out, labels, "sizes_delta", list(deltas), delta=True)
    gauge = [
        (i, _exponential(chance, chance.choice([0, 1]), negative).with_hint(ResetHint.GAUGE))
        for i in _scrapes(chance, 0.5)
    ]
    _put(out, labels, "queue", list(gauge))
    mixed: list[tuple[int, float | Histogram]] = []
    kind = 0
    for i in _scrapes(chance, 0.5):
        kind = chance.randint(0, 3) if chance.random() < 0.2 else kind
        value: float | Histogram = _quarter(chance, 0, 9)
        if kind:
            value = _custom(chance) if kind == 3 else _exponential(chance, 1, negative)
        mixed.append((i, STALE if chance.random() < 0.05 else value))
    _put(out, labels, "mixed", mixed)


def _growing(chance: random.Random, custom: bool) -> list[tuple[int, float | Histogram]]:
    """A counter of histograms; now and then it starts anew, perhaps with other buckets."""
    schema = chance.choice([-1, 0, 2])
    bounds = chance.choice([(0.5, 1.0, 5.0), (1.0, 5.0), (-1.0, 0.0, 1.0, 5.0)])
    points: list[tuple[int, float | Histogram]] = []
    value: Histogram | None = None
    negative = chance.random() < 0.3
    for i in _scrapes(chance, 0.5):
        if chance.random() < 0.04:
            value = None
            schema = chance.choice([-1, 0, 2])
            bounds = chance.choice([(0.5, 1.0, 5.0), (1.0, 5.0)])
        more = _custom(chance, bounds) if custom else _exponential(chance, schema, negative)
        value = more if value is None else add(value, more).value
        points.append((i, value))
        if chance.random() < 0.03:
            points[-1] = (i, STALE)
    return points


def _exponential(
    chance: random.Random, schema: int, negative: bool = True, zero_threshold: float = 0.015625
) -> Histogram:
    # No bucket reaches into the zero bucket: what then comes out is not defined, and Prometheus shows as much.
    pos = _buckets(chance, chance.randint(-2, 2))
    neg = _buckets(chance, 0) if negative else {}
    zero = float(chance.randint(0, 2))
    return Histogram(
        schema=schema,
        count=sum(pos.values()) + sum(neg.values()) + zero,
        sum=_quarter(chance, -5, 30),
        zero_threshold=zero_threshold,
        zero_count=zero,
        pos_index=np.array(list(pos), dtype=np.int64),
        pos_count=np.array(list(pos.values()), dtype=np.float64),
        neg_index=np.array(list(neg), dtype=np.int64),
        neg_count=np.array(list(neg.values()), dtype=np.float64),
    )


def _custom(chance: random.Random, bounds: tuple[float, ...] = (1.0, 5.0)) -> Histogram:
    counts = {i: float(chance.randint(1, 5)) for i in range(len(bounds) + 1) if chance.random() < 0.8}
    return Histogram(
        schema=CUSTOM_SCHEMA,
        count=sum(counts.values()),
        sum=_quarter(chance, 0, 30),
        pos_index=np.array(list(counts), dtype=np.int64),
        pos_count=np.array(list(counts.values()), dtype=np.float64),
        bounds=bounds,
    )


def _buckets(chance: random.Random, first: int) -> dict[int, float]:
    """At least one: a chunk gives a bucket that some of its histograms have to all of them, and a histogram without
    negative buckets is not treated as one with empty ones."""
    return {first + i: float(chance.randint(1, 6)) for i in range(5) if i == 2 or chance.random() < 0.7}
