"""Results as Prometheus' JSON, made as bytes: no object per sample on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
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
from lakerunner.serve.prometheus.numbers import raw_texts, time_text, time_texts, value_text, value_texts
from lakerunner.serve.prometheus.weave import weave

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


@dataclass(frozen=True, slots=True)
class _Times:
    """What stands before each value of a series, `"],[1700000000,"`, one after another."""

    texts: list[bytes]
    joined: npt.NDArray[np.uint8]
    offsets: Ints

    @classmethod
    def of(cls, times_ms: Ints) -> _Times:
        texts = [b'"],[%s,"' % text for text in time_texts(times_ms)]
        texts[0] = b"[" + texts[0][3:]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(texts, np.frombuffer(b"".join(texts), dtype=np.uint8), offsets)


def _matrix(matrix: MatrixResult) -> list[bytes]:
    known: dict[bytes, _Times] = {}
    return [_series(series, known) for series in matrix]


def _series(series: Series, known: dict[bytes, _Times]) -> bytes:
    parts = [b'{"metric":%s' % labels_json(series.labels)]
    if len(series.timestamps_ms):
        parts.append(b',"values":%s' % _points(series.timestamps_ms, series.values, known))
    if series.histograms:
        times = time_texts(series.histogram_timestamps_ms)
        points = [b"[%s,%s]" % (time, histogram_json(one)) for time, one in zip(times, series.histograms, strict=True)]
        parts.append(b',"histograms":[%s]' % b",".join(points))
    return b"".join(parts) + b"}"


def _points(times_ms: Ints, values: Floats, known: dict[bytes, _Times]) -> bytes:
    """`[[time,"value"],…]`."""
    key = times_ms.tobytes()
    times = known.get(key)
    if times is None:
        if len(known) >= _KEPT_TIMES:
            known.clear()
        times = known[key] = _Times.of(times_ms)
    digits = np.frombuffer(raw_texts(values), dtype=np.uint8)
    out = np.empty(len(digits) + len(times.joined), dtype=np.uint8)
    length = weave(digits, times.joined, times.offsets, out)
    if length >= 0:
        return out[:length].tobytes() + b'"]]'
    woven: list[bytes] = [b""] * (2 * len(times.texts))
    woven[0::2] = times.texts
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
