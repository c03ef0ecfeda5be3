"""OTLP as JSON: the only way to give start timestamps to Prometheus 3.15, whose remote write receiver drops them.

Every sample is sent as cumulative with a start of its own, which the store keeps as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from tests.differential.promql.samples import Sample

_CUMULATIVE = 2
#: What the receiver makes of every zero bucket.
ZERO_THRESHOLD = 1e-128


def otlp_request(series: Iterable[tuple[LabelSet, Sequence[Sample]]]) -> bytes:
    metrics = [_metric(labels, samples) for labels, samples in series]
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}).encode()


def _metric(labels: LabelSet, samples: Sequence[Sample]) -> dict[str, Any]:
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in labels.without(METRIC_NAME)]
    points = [
        {
            "attributes": attributes,
            "timeUnixNano": str(sample.time_ms * 1_000_000),
            "startTimeUnixNano": str(sample.start_ms * 1_000_000),
            **_value(sample.value),
        }
        for sample in samples
    ]
    body: dict[str, Any] = {"dataPoints": points, "aggregationTemporality": _CUMULATIVE}
    if isinstance(samples[0].value, Histogram):
        return {"name": labels.get(METRIC_NAME), "exponentialHistogram": body}
    return {"name": labels.get(METRIC_NAME), "sum": body | {"isMonotonic": True}}


def _value(value: float | Histogram) -> dict[str, Any]:
    if not isinstance(value, Histogram):
        return {"asDouble": value}
    return {
        "count": str(round(value.count)),
        "sum": value.sum,
        "scale": value.schema,
        "zeroCount": str(round(value.zero_count)),
        "positive": _buckets(value.pos_index, value.pos_count),
        "negative": _buckets(value.neg_index, value.neg_count),
    }


def _buckets(index: np.ndarray, count: np.ndarray) -> dict[str, Any]:
    """A bucket is named by its lower bound there, by its upper bound here: one less."""
    if not len(index):
        return {}
    first = int(index[0])
    dense = np.zeros(int(index[-1]) - first + 1, dtype=np.int64)
    dense[index - first] = count
    return {"offset": first - 1, "bucketCounts": [str(number) for number in dense.tolist()]}
