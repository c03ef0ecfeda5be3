"""The samples that both engines get: every kind of series that a query may meet, small enough to load in a second.

Values are multiples of a quarter, so that sums are exact and do not depend on the order of the series.
"""

from __future__ import annotations

import math
import random

from lakerunner.query.series.batch import STALE
from lakerunner.query.series.histograms.histogram import Histogram, ResetHint
from lakerunner.query.series.histograms.math import add
from lakerunner.query.series.memory_source import MemorySource
from tests.differential.promql.histograms import custom, exponential
from tests.differential.promql.oddities import add_oddities
from tests.differential.promql.otlp import ZERO_THRESHOLD
from tests.differential.promql.samples import SCRAPES, Series, deltas, put, quarter, scrapes
from tests.query.promqltest.loading import stored_hints

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
            add_oddities(out, labels, chance)
            # Their version changes half way through, as after a deployment.
            for version, times in (("1", range(60)), ("2", range(60, SCRAPES))):
                put(out, labels | {"version": version, "cluster": f"c{job}"}, "target_info", [(i, 1.0) for i in times])
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


def _counter(chance: random.Random, times: list[int], reset: float = 0.03) -> list[tuple[int, float | Histogram]]:
    value, points = 0.0, []
    for i in times:
        value = 0.0 if chance.random() < reset else value + quarter(chance, 0, 9)
        points.append((i, value))
    return points


def _add_floats(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    for code in ("200", "500"):
        put(out, labels | {"code": code}, "requests_total", _counter(chance, scrapes(chance)))
    times = scrapes(chance, 0.1)
    put(out, labels, "deltas_total", [(i, quarter(chance, 0, 9)) for i in times], deltas(times))
    put(out, labels, "temperature", [(i, quarter(chance, -20, 40)) for i in scrapes(chance)])
    # Comes and goes: sparse, and then gone for longer than the look-back.
    put(out, labels, "sparse", [(i, quarter(chance, 0, 5)) for i in scrapes(chance, 0.9)])
    flapping = [(i, STALE if chance.random() < 0.15 else float(chance.randint(0, 3))) for i in scrapes(chance, 0.2)]
    put(out, labels, "flapping", flapping)
    odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e-300]
    weird = [(i, chance.choice(odd) if chance.random() < 0.2 else quarter(chance, -3, 3)) for i in scrapes(chance)]
    put(out, labels, "weird", weird)
    put(out, labels | {"zone": labels["instance"][1]}, "constant", [(i, 1.0) for i in range(SCRAPES)])


def _add_classic(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    times = scrapes(chance)
    counts = dict.fromkeys(_BOUNDS, 0.0)
    columns: dict[str, list[tuple[int, float | Histogram]]] = {bound: [] for bound in _BOUNDS}
    for i in times:
        if chance.random() < 0.03:
            counts = dict.fromkeys(_BOUNDS, 0.0)
        more = 0.0
        for bound in _BOUNDS:
            more += chance.randint(0, 3)
            counts[bound] += more
            columns[bound].append((i, counts[bound]))
    for bound in _BOUNDS:
        put(out, labels | {"le": bound}, "latency_bucket", columns[bound])
    put(out, labels, "latency_count", list(columns["+Inf"]))
    put(out, labels, "latency_sum", _counter(chance, times))


def _add_native(out: Series, labels: dict[str, str], chance: random.Random) -> None:
    negative = chance.random() < 0.5
    put(out, labels, "size", _growing(chance, has_bounds=False))
    put(out, labels, "custom", _growing(chance, has_bounds=True))
    times = scrapes(chance, 0.5)
    sizes = [(i, exponential(chance, 0, negative, ZERO_THRESHOLD)) for i in times]
    put(out, labels, "sizes_delta", sizes, deltas(times))
    gauge = [
        (i, exponential(chance, chance.choice([0, 1]), negative).with_hint(ResetHint.GAUGE))
        for i in scrapes(chance, 0.5)
    ]
    put(out, labels, "queue", list(gauge))
    mixed: list[tuple[int, float | Histogram]] = []
    kind = 0
    for i in scrapes(chance, 0.5):
        kind = chance.randint(0, 3) if chance.random() < 0.2 else kind
        value: float | Histogram = quarter(chance, 0, 9)
        if kind:
            value = custom(chance) if kind == 3 else exponential(chance, 1, negative)
        mixed.append((i, STALE if chance.random() < 0.05 else value))
    put(out, labels, "mixed", mixed)


def _growing(chance: random.Random, has_bounds: bool) -> list[tuple[int, float | Histogram]]:
    """A counter of histograms; now and then it starts anew, perhaps with other buckets."""
    schema = chance.choice([-1, 0, 2])
    bounds = chance.choice([(0.5, 1.0, 5.0), (1.0, 5.0), (-1.0, 0.0, 1.0, 5.0)])
    points: list[tuple[int, float | Histogram]] = []
    value: Histogram | None = None
    negative = chance.random() < 0.3
    for i in scrapes(chance, 0.5):
        if chance.random() < 0.04:
            value = None
            schema = chance.choice([-1, 0, 2])
            bounds = chance.choice([(0.5, 1.0, 5.0), (1.0, 5.0)])
        more = custom(chance, bounds) if has_bounds else exponential(chance, schema, negative)
        value = more if value is None else add(value, more).value
        points.append((i, value))
        if chance.random() < 0.03:
            points[-1] = (i, STALE)
    return points
