"""JSON as every dialect writes it: by orjson, and tolerant of bytes that are no UTF-8."""

from __future__ import annotations

import orjson
from starlette.responses import Response

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.serve.rendering.numbers import value_text


def json_response(document: object, status_code: int = 200) -> Response:
    """An answer; UUIDs and times are written as text."""
    return Response(orjson.dumps(document), status_code=status_code, media_type="application/json")


def json_text(document: object) -> bytes:
    """JSON of anything, with bytes that are no UTF-8 (lone surrogates, here) replaced."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return orjson.dumps(_mended(document))


def _mended(document: object) -> object:
    if isinstance(document, str):
        return document.encode("utf-8", "replace").decode()
    if isinstance(document, dict):
        return {str(_mended(key)): _mended(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_mended(part) for part in document]
    return document


def labels_json(labels: LabelSet) -> bytes:
    try:
        return labels.to_json()
    except TypeError:
        return json_text(dict(labels.pairs))


def histogram_json(histogram: Histogram) -> bytes:
    """Count, sum and the buckets that are not empty: how their bounds belong to them, bounds, count."""
    lower, upper, count = histogram.all_buckets_unclipped()
    buckets = [
        [_bounds(histogram, low, high, place), value_text(low), value_text(high), value_text(number)]
        for place, (low, high, number) in enumerate(
            zip(lower.tolist(), upper.tolist(), count.tolist(), strict=True),
        )
        if number
    ]
    document: dict[str, object] = {"count": value_text(histogram.count), "sum": value_text(histogram.sum)}
    if buckets:
        document["buckets"] = buckets
    return orjson.dumps(document)


def _bounds(histogram: Histogram, low: float, high: float, place: int) -> int:
    """0: without the lower bound; 1: without the upper; 2: without either; 3: with both."""
    if histogram.custom:
        with_low, with_high = bool(histogram.pos_index[place] == 0), True
    else:
        with_low, with_high = low < 0, high > 0
    if with_low:
        return 3 if with_high else 1
    return 0 if with_high else 2
