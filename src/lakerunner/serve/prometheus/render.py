"""Results as Prometheus' JSON, made as bytes: no object per sample on the way."""

from __future__ import annotations

import orjson

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.histogram import Floats, Histogram, Ints
from lakerunner.query.promql.results import (
    MatrixResult,
    ScalarResult,
    Series,
    StringResult,
    Value,
    VectorResult,
)
from lakerunner.serve.prometheus.numbers import time_text, time_texts, value_text, value_texts

#: Series of one answer mostly share their times; this many different arrays of times are kept as text.
_KEPT_TIMES = 64


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
    return json_text(dict(labels.pairs))


def data_json(value: Value) -> bytes:
    """The member `data` of an answer."""
    match value:
        case ScalarResult(time_ms=time_ms, value=number):
            return b'{"resultType":"scalar","result":[%s,"%s"]}' % (time_text(time_ms), value_text(number).encode())
        case StringResult(time_ms=time_ms, value=text):
            return b'{"resultType":"string","result":[%s,%s]}' % (time_text(time_ms), json_text(text))
        case VectorResult():
            return b'{"resultType":"vector","result":[%s]}' % b",".join(_vector(value))
        case MatrixResult():
            return b'{"resultType":"matrix","result":[%s]}' % b",".join(_matrix(value))


def _vector(vector: VectorResult) -> list[bytes]:
    time = time_text(vector.time_ms)
    texts = value_texts(vector.values)
    return [
        b'{"metric":%s,"value":[%s,"%s"]}' % (labels_json(labels), time, text)
        if histogram is None
        else b'{"metric":%s,"histogram":[%s,%s]}' % (labels_json(labels), time, histogram_json(histogram))
        for labels, text, histogram in zip(vector.labels, texts, vector.histograms, strict=True)
    ]


def _matrix(matrix: MatrixResult) -> list[bytes]:
    known: dict[bytes, list[bytes]] = {}
    return [_series(series, known) for series in matrix]


def _series(series: Series, known: dict[bytes, list[bytes]]) -> bytes:
    parts = [b'{"metric":%s' % labels_json(series.labels)]
    if len(series.timestamps_ms):
        parts.append(b',"values":%s' % _points(series.timestamps_ms, series.values, known))
    if series.histograms:
        times = time_texts(series.histogram_timestamps_ms)
        points = [b"[%s,%s]" % (time, histogram_json(one)) for time, one in zip(times, series.histograms, strict=True)]
        parts.append(b',"histograms":[%s]' % b",".join(points))
    return b"".join(parts) + b"}"


def _points(times_ms: Ints, values: Floats, known: dict[bytes, list[bytes]]) -> bytes:
    """`[[time,"value"],…]`. Times and values are woven by slices and one join."""
    key = times_ms.tobytes()
    before = known.get(key)
    if before is None:
        before = [b'"],[%s,"' % text for text in time_texts(times_ms)]
        before[0] = b"[" + before[0][3:]
        if len(known) >= _KEPT_TIMES:
            known.clear()
        known[key] = before
    woven: list[bytes] = [b""] * (2 * len(before))
    woven[0::2] = before
    woven[1::2] = value_texts(values)
    return b"".join(woven) + b'"]]'


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
