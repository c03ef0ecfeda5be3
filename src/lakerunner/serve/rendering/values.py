"""Renders results as Prometheus JSON. Bytes are written directly, without a Python object per sample."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.model.labels import LabelSet
from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.label_list import label_list
from lakerunner.query.series.results import (
    MatrixResult,
    ScalarResult,
    Series,
    StringResult,
    Value,
    VectorResult,
)
from lakerunner.serve.rendering.json import histogram_json, json_text, labels_json
from lakerunner.serve.rendering.json_kernel import NUMBER_BYTES, POINT_BYTES, SERIES_BYTES, write_series
from lakerunner.serve.rendering.numbers import raw_texts, time_text, time_texts, value_text, value_texts

#: How many distinct time arrays to cache as text. Most series of an answer share their times.
_CACHED_TIMES = 64
#: The same across answers, for the panels of a dashboard: some 30 bytes per step.
_KEPT_TIMES = 64
#: The text before and after the points of a series.
_VECTOR = np.frombuffer(b',"value":', np.uint8), np.frombuffer(b"}", np.uint8)
_MATRIX = np.frombuffer(b',"values":[', np.uint8), np.frombuffer(b"]}", np.uint8)
#: orjson writes numbers in this range without an exponent, so their text never becomes longer.
_NO_EXPONENT = 1e-3, 1e15


def data_json(value: Value) -> bytes:
    """Render the `data` member of an answer."""
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
    if not any(vector.histograms):
        all_valid = np.ones((len(vector.labels), 1), dtype=bool)
        times = Pieces.of([b'[%s,"' % time])
        return [_write(vector.labels, times, vector.values[:, np.newaxis], all_valid, _VECTOR)] if vector.labels else []
    texts = value_texts(vector.values)
    return [
        b'{"metric":%s,"value":[%s,"%s"]}' % (labels_json(labels), time, text)
        if histogram is None
        else b'{"metric":%s,"histogram":[%s,%s]}' % (labels_json(labels), time, histogram_json(histogram))
        for labels, text, histogram in zip(vector.labels, texts, vector.histograms, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Concatenated byte strings: piece i is `joined[offsets[i] : offsets[i + 1]]`."""

    joined: npt.NDArray[np.uint8]
    offsets: Ints

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> Pieces:
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(np.frombuffer(b"".join(pieces), dtype=np.uint8), offsets)

    @classmethod
    def of_labels(cls, labels: Sequence[LabelSet]) -> Pieces:
        packed = label_list(labels).packed
        if packed is None or (pieces := cls._of_json(packed)) is None:
            return cls.of([labels_json(label_set) for label_set in labels])
        return pieces

    @classmethod
    def _of_json(cls, packed: pa.BinaryArray) -> Pieces | None:
        """The packed label sets without a copy; None unless all of them are packed as JSON."""
        joined, offsets = text_bytes(packed)
        if not (joined[offsets[:-1]] == ord("{")).all():
            return None
        return cls(joined, offsets.astype(np.int64))

    @classmethod
    def of_times(cls, times_ms: Ints) -> Pieces:
        return _pieces_of_times(np.ascontiguousarray(times_ms, np.int64).tobytes())


@functools.lru_cache(maxsize=_KEPT_TIMES)
def _pieces_of_times(times_ms: bytes) -> Pieces:
    return Pieces.of([b'[%s,"' % text for text in time_texts(np.frombuffer(times_ms, np.int64))])


def _matrix(matrix: MatrixResult) -> list[bytes]:
    steps = matrix.steps
    if steps is not None and (steps.hmask is None or not steps.hmask.any()):
        if not steps.labels:
            return []
        return [_write(steps.labels, Pieces.of_times(steps.times_ms), steps.values, steps.valid, _MATRIX)]
    cached_times: dict[bytes, Pieces] = {}
    return [_series(series, cached_times) for series in matrix]


def _write(
    labels: Sequence[LabelSet],
    times: Pieces,
    values: Floats,
    valid: npt.NDArray[np.bool_],
    around: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
) -> bytes:
    """Write the JSON objects of all series, separated by commas."""
    heads = label_list(labels).kept("json", lambda: Pieces.of_labels(labels))
    all_valid = bool(valid.all())
    numbers = np.ascontiguousarray(values).ravel() if all_valid else values[valid]
    digits = np.frombuffer(raw_texts(numbers), dtype=np.uint8)
    widest = int(np.diff(times.offsets).max(initial=0))
    size = len(digits) + len(numbers) * (widest + POINT_BYTES) + len(heads.joined) + len(labels) * SERIES_BYTES
    if not ((np.abs(numbers) >= _NO_EXPONENT[0]) & (np.abs(numbers) < _NO_EXPONENT[1]) | (numbers == 0)).all():
        size += len(numbers) * NUMBER_BYTES
    out = np.empty(size, dtype=np.uint8)
    length = write_series(
        digits, numbers, valid, times.joined, times.offsets, heads.joined, heads.offsets, around[0], around[1], out
    )
    return out[:length].tobytes()


def _series(series: Series, cached_times: dict[bytes, Pieces]) -> bytes:
    parts = [b'{"metric":%s' % labels_json(series.labels)]
    if len(series.timestamps_ms):
        key = series.timestamps_ms.tobytes()
        times = cached_times.get(key)
        if times is None:
            if len(cached_times) >= _CACHED_TIMES:
                cached_times.clear()
            times = cached_times[key] = Pieces.of_times(series.timestamps_ms)
        all_valid = np.ones((1, len(series.values)), dtype=bool)
        written = _write([series.labels], times, series.values[np.newaxis], all_valid, _MATRIX)
        if not series.histograms:
            return written
        parts = [written[:-1]]
    if series.histograms:
        stamps = time_texts(series.histogram_timestamps_ms)
        pairs = zip(stamps, series.histograms, strict=True)
        points = [b"[%s,%s]" % (time, histogram_json(histogram)) for time, histogram in pairs]
        parts.append(b',"histograms":[%s]' % b",".join(points))
    return b"".join(parts) + b"}"
