"""JSON for every dialect: written by orjson, and tolerant of text that is not valid UTF-8."""

from __future__ import annotations

import orjson
from starlette.responses import Response

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.serve.rendering.numbers import value_text


def json_response(document: object, status_code: int = 200) -> Response:
    """A JSON response. UUIDs and times are written as text."""
    return Response(orjson.dumps(document), status_code=status_code, media_type="application/json")


def json_text(document: object) -> bytes:
    """Encode a document as JSON. Invalid UTF-8, which appears here as lone surrogates, is replaced."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return orjson.dumps(_without_surrogates(document))


def _without_surrogates(document: object) -> object:
    if isinstance(document, str):
        return document.encode("utf-8", "replace").decode()
    if isinstance(document, dict):
        return {str(_without_surrogates(key)): _without_surrogates(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_without_surrogates(part) for part in document]
    return document


def labels_json(labels: LabelSet) -> bytes:
    try:
        return labels.to_json()
    except TypeError:
        return json_text(dict(labels.pairs))


def histogram_json(histogram: Histogram) -> bytes:
    """Encode a histogram: count, sum, and for each non-empty bucket its boundary rule, bounds and count."""
    lower, upper, count = histogram.all_buckets_unclipped()
    buckets = [
        [_boundary_rule(histogram, low, high, position), value_text(low), value_text(high), value_text(number)]
        for position, (low, high, number) in enumerate(
            zip(lower.tolist(), upper.tolist(), count.tolist(), strict=True),
        )
        if number
    ]
    document: dict[str, object] = {"count": value_text(histogram.count), "sum": value_text(histogram.sum)}
    if buckets:
        document["buckets"] = buckets
    return orjson.dumps(document)


def _boundary_rule(histogram: Histogram, low: float, high: float, position: int) -> int:
    """Which bounds the bucket includes. 0: only the upper; 1: only the lower; 2: neither; 3: both."""
    if histogram.custom:
        with_low, with_high = bool(histogram.pos_index[position] == 0), True
    else:
        with_low, with_high = low < 0, high > 0
    if with_low:
        return 3 if with_high else 1
    return 0 if with_high else 2
