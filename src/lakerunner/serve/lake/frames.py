"""Frames of the event stream: `data: {"type": …, "data": …}`. Each result frame has its own id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.results import MatrixResult
from lakerunner.serve.rendering.json import histogram_json, json_text
from lakerunner.serve.rendering.numbers import value_texts

#: Results per piece: few enough that the first piece is sent soon, enough that the cost per piece is small.
_PIECE_RESULTS = 2_000
_SPECIAL = {b"NaN": b'"NaN"', b"+Inf": b'"+Inf"', b"-Inf": b'"-Inf"'}


def frame(kind: str, document: object, event_id: bytes = b"") -> bytes:
    """One frame. A frame without an id leaves the client's last event id unchanged."""
    head = b"id: %s\n" % event_id if event_id else b""
    return b'%sdata: {"type":"%s","data":%s}\n\n' % (head, kind.encode(), json_text(document))


def result_frames(
    matrix: MatrixResult, stem: bytes, skip: tuple[int, int] | None = None, limit: int | None = None
) -> Iterator[tuple[bytes, int]]:
    """Yield pieces of frames and the number of frames in each, ordered by time and then by series.

    `skip` is the step and position of the last result that was sent before; frames start after it. `limit` is the
    maximum number of frames.
    """
    heads = [_head(series.labels) for series in matrix]
    times, rows, values = _points(matrix)
    order = np.lexsort((rows, times))
    times, rows = times[order], rows[order]
    first = np.flatnonzero(np.diff(times, prepend=times[0] - 1 if len(times) else 0))
    positions = np.arange(len(times)) - np.repeat(first, np.diff(first, append=len(times)))
    if skip is not None:
        keep = (times > skip[0]) | ((times == skip[0]) & (positions > skip[1]))
        order, times, rows, positions = order[keep], times[keep], rows[keep], positions[keep]
    end = len(times) if limit is None else min(limit, len(times))
    for start in range(0, end, _PIECE_RESULTS):
        piece = slice(start, min(start + _PIECE_RESULTS, end))
        columns = (order[piece].tolist(), times[piece].tolist(), rows[piece].tolist(), positions[piece].tolist())
        frames = [
            b'id: %s%d_%d\n%s%s,"timestamp":%d}}\n\n' % (stem, time, position, heads[row], values[number], time)
            for number, time, row, position in zip(*columns, strict=True)
        ]
        yield b"".join(frames), len(frames)


def _head(labels: LabelSet) -> bytes:
    tags, label = json_text(dict(labels.pairs)), json_text(str(labels))
    return b'data: {"type":"result","data":{"tags":%s,"label":%s,' % (tags, label)


def _points(matrix: MatrixResult) -> tuple[np.ndarray, np.ndarray, Sequence[bytes]]:
    """The samples of all series, concatenated: times, series numbers, and values as JSON members."""
    times, rows, members = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], []
    for row, series in enumerate(matrix):
        times += [series.timestamps_ms, series.histogram_timestamps_ms]
        rows.append(np.full(len(series.timestamps_ms) + len(series.histograms), row, dtype=np.int64))
        members += [b'"value":' + _SPECIAL.get(text, text) for text in value_texts(series.values)]
        members += map(_histogram, series.histograms)
    return np.concatenate(times), np.concatenate(rows), members


def _histogram(histogram: Histogram) -> bytes:
    return b'"histogram":' + histogram_json(histogram)
