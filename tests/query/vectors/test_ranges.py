"""Range functions: large calls are done in parts, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.vectors import ranges
from tests.query.engine import Engine


@pytest.mark.parametrize("samples", [1, 7, 100, 10_000])
@pytest.mark.parametrize(
    "text",
    [
        "sum_over_time(m[3m])",
        "quantile_over_time(scalar(q), m[5m])",
        "rate(m[2m])",
        "rate(mixed[2m])",
        "sum_over_time(mixed[2m])",
        "predict_linear(m[4m], 60)",
        "double_exponential_smoothing(m[5m], 0.3, 0.6)",
        "changes(m[3m] anchored)",
        "sum_over_time(m[5m] @ 600)",
    ],
)
def test_a_call_in_parts_gives_the_same(monkeypatch: pytest.MonkeyPatch, text: str, samples: int) -> None:
    source, random = MemorySource(), np.random.default_rng(3)
    times = np.arange(0, 1_200_000, 15_000)
    for row in range(5):
        source.add(LabelSet.of({"__name__": "m", "i": str(row)}), times, random.integers(0, 50, len(times)) * 0.25)
    source.add(LabelSet.of({"__name__": "q"}), times, np.linspace(0, 1, len(times)))
    for row in range(5):
        source.add(LabelSet.of({"__name__": "mixed", "i": str(row)}), times, random.integers(0, 50, len(times)) * 0.25)
    hists = [Histogram(count=n, sum=n, pos_index=np.array([1]), pos_count=np.array([float(n)])) for n in range(80)]
    source.add(LabelSet.of({"__name__": "mixed", "i": "h"}), times, np.zeros(len(times)), histograms=hists)
    whole = Engine(source).range(text, 300_000, 1_200_000, 30_000)
    monkeypatch.setattr(ranges, "_SAMPLES_PER_CHECK", samples)
    parts = Engine(source).range(text, 300_000, 1_200_000, 30_000)
    assert len(whole.value.series) == len(parts.value.series) > 0
    for one, other in zip(whole.value.series, parts.value.series, strict=True):
        assert one.labels == other.labels
        assert one.values.tobytes() == other.values.tobytes()
        assert one.timestamps_ms.tolist() == other.timestamps_ms.tolist()
