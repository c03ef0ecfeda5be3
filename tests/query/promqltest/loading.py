"""What a store makes of loaded series: counter-reset hints as chunks give them, custom-bucket histograms."""

from __future__ import annotations

import math
from collections import defaultdict

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram, ResetHint
from lakerunner.query.series.histograms.math import is_reset
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.vectors.histograms.functions import bucket_bound_of
from tests.query.promqltest.script import Load
from tests.query.promqltest.series import Point

import numpy as np  # isort: skip


def stored_hints(histograms: list[Histogram | None]) -> list[Histogram | None]:
    """The hints with which a histogram comes back from a store that keeps counters in chunks.

    The first of a chunk is unknown, those after it are known not to be resets; a reset, another layout, or a float
    in between begins a new chunk. Gauges stay gauges.
    """
    out: list[Histogram | None] = []
    previous: Histogram | None = None
    for histogram in histograms:
        if histogram is None or histogram.hint is ResetHint.GAUGE:
            out.append(histogram)
        else:
            bare = histogram.with_hint(ResetHint.UNKNOWN)
            continues = (
                previous is not None
                and previous.hint is not ResetHint.GAUGE
                and histogram.hint is not ResetHint.RESET
                and (previous.schema, previous.zero_threshold, previous.bounds)
                == (bare.schema, bare.zero_threshold, bare.bounds)
                and not is_reset(bare, previous.with_hint(ResetHint.UNKNOWN))
            )
            out.append(bare.with_hint(ResetHint.NOT_RESET) if continues else bare)
        previous = histogram
    return out


def load_into(source: MemorySource, load: Load) -> None:
    for labels, points, starts in load.series:
        add_points(source, labels, points, load.step_ms, starts)
    if load.nhcb:
        for labels, samples in _custom_histograms(load).items():
            times = sorted(samples)
            histograms = stored_hints([samples[time_ms] for time_ms in times])
            source.add(labels, times, [0.0] * len(times), histograms=histograms)


def add_points(
    source: MemorySource, labels: LabelSet, points: list[Point], step_ms: int, starts: list[int | None] | None
) -> None:
    kept = [i for i, point in enumerate(points) if point.value is not None]
    values = [points[i].value for i in kept]
    histograms = stored_hints([value if isinstance(value, Histogram) else None for value in values])
    begins = [0] * len(kept)
    if starts is not None:
        begins = [i * step_ms + start if (start := starts[i]) is not None else 0 for i in kept]
    source.add(
        labels,
        [i * step_ms for i in kept],
        [value if isinstance(value, float) else 0.0 for value in values],
        begins,
        histograms if any(histograms) else None,
    )


def _custom_histograms(load: Load) -> dict[LabelSet, dict[int, Histogram]]:
    """Classic histograms among the series, as native ones with custom buckets."""
    parts: dict[LabelSet, dict[int, dict[str | float, float]]] = defaultdict(lambda: defaultdict(dict))
    for labels, points, _ in load.series:
        name = labels.get(METRIC_NAME)
        base, _, suffix = name.rpartition("_")
        key: str | float | None = suffix
        if suffix == "bucket":
            key = bucket_bound_of(labels.get("le"))
        if suffix not in ("bucket", "count", "sum") or key is None or key != key:
            continue
        target = labels.without("le").with_label(METRIC_NAME, base)
        for i, point in enumerate(points):
            if isinstance(point.value, float):
                parts[target][i * load.step_ms][key] = point.value
    out: dict[LabelSet, dict[int, Histogram]] = {}
    for target, by_time in parts.items():
        out[target] = {time_ms: _custom_histogram(fields) for time_ms, fields in by_time.items()}
    return out


def _custom_histogram(fields: dict[str | float, float]) -> Histogram:
    bounds = sorted(key for key in fields if isinstance(key, float))
    cumulative = [fields[bound] for bound in bounds]
    count = fields.get("count", cumulative[-1] if cumulative else 0.0)
    if not bounds or bounds[-1] != math.inf:
        bounds.append(math.inf)
        cumulative.append(count)
    counts = np.diff(np.array([0.0, *cumulative]))
    return Histogram(
        schema=CUSTOM_SCHEMA,
        count=count,
        sum=fields.get("sum", 0.0),
        pos_index=np.arange(len(counts), dtype=np.int64),
        pos_count=counts,
        bounds=tuple(bounds[:-1]),
    ).compact()
