"""Renders log entries as server-sent events, without a Python object per entry."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakerunner.model.time import NS_PER_MS
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.serve.rendering.entry_kernel import FRAME_BYTES, total_escaped_bytes, write_frames
from lakerunner.serve.rendering.streams import LINE, TIME, coded_labels, pieces_of, text_buffers

_PARTS = (
    b"id: ",
    b'\ndata: {"type":"result","data":{"timestamp":',
    b',"timestampNs":"',
    b'","message":"',
    b'","tags":',
    b"}}\n\n",
)
_TEXTS = np.frombuffer(b"".join(_PARTS), np.uint8)
_TEXT_OFFSETS = np.cumsum([0, *map(len, _PARTS)])


def log_frames(batch: pa.RecordBatch, stem: bytes, of_instant: Ints, sent: int, names: tuple[str, ...] | None) -> bytes:
    """One frame per entry, whose id is the stem, its time, its place among those of its instant, and its number."""
    table = pa.Table.from_batches([batch])
    times = batch.column(TIME).cast(pa.int64()).to_numpy(zero_copy_only=False)
    data, offsets = text_buffers(batch.column(LINE))
    label_of, texts = coded_labels(table, names)
    labels = pieces_of(texts)
    size = total_escaped_bytes(data, offsets) + len(times) * (FRAME_BYTES + len(stem) + len(_TEXTS))
    size += int(np.diff(labels.offsets)[label_of].sum())
    out = np.empty(size, np.uint8)
    stem_bytes = np.frombuffer(stem, np.uint8)
    length = write_frames(
        times,
        times // NS_PER_MS,
        of_instant,
        sent,
        data,
        offsets,
        labels.joined,
        labels.offsets,
        label_of,
        stem_bytes,
        _TEXTS,
        _TEXT_OFFSETS,
        out,
    )
    return out[:length].tobytes()


def places_in_instants(times_ns: Ints, last_ns: int | None, of_last: int) -> Ints:
    """How many entries of its instant there are up to each entry. The entries are in order of time.

    `last_ns` is the time of the entry before the first, and `of_last` its place.
    """
    if not len(times_ns):
        return np.zeros(0, np.int64)
    first = np.flatnonzero(np.diff(times_ns, prepend=times_ns[0] - 1))
    lengths = np.diff(first, append=len(times_ns))
    places: Ints = np.arange(1, len(times_ns) + 1) - np.repeat(first, lengths)
    if last_ns is not None and times_ns[0] == last_ns:
        places[: lengths[0]] += of_last
    return places
