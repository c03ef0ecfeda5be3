"""Fast remote write 1.0: numpy encodes blocks of series as protobuf, in the time slices that a TSDB accepts.

Both peers accept version 1.0. A float sample always has 18 bytes, because times from 1971 to 2109 are varints of six
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from bench.promql.sets import (
    BOUNDS,
    END_MS,
    HOUR_MS,
    NATIVE_SCHEMA,
    ZERO_THRESHOLD,
    Floats,
    Histograms,
    Ints,
    Kind,
    MetricSet,
    first_bucket,
    histograms_of,
    values_of,
)

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.go_format import plain
from tests.components.protobuf import double, integer, lengthy, varint, zigzag

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
#: Prometheus' head accepts samples at most half a block (an hour) older than the newest, so all series advance together
#: in steps of this length.
SLICE_MS = HOUR_MS // 2
_SAMPLE_BYTES = 18
_TIME_BYTES = 6
#: Gives requests of a few MB; receivers refuse those over 32 MB.
_REQUEST_SAMPLES = 200_000
_SNAPPY = pa.Codec("snappy")


@dataclass(frozen=True, slots=True)
class Block:
    """The series of one set as sent to a peer: floats or native histograms."""

    metric: MetricSet
    labels: Sequence[LabelSet]
    #: For each series, the row of the set's series whose scrape time it shares.
    scraped_with: Ints
    values: Floats | None = None
    histograms: Histograms | None = None


def block_of(metric: MetricSet) -> Block:
    if metric.kind is Kind.CLASSIC:
        return _classic(metric)
    rows = np.arange(metric.series)
    if metric.kind is Kind.NATIVE:
        return Block(metric, metric.labels(), rows, histograms=histograms_of(metric))
    return Block(metric, metric.labels(), rows, values_of(metric))


def _classic(metric: MetricSet) -> Block:
    """Return one cumulative series per bucket, and the series of sum and count."""
    histograms = histograms_of(metric)
    below = np.cumsum(histograms.counts, axis=2).astype(np.float64)
    columns = [below[:, :, bucket] for bucket in range(below.shape[2])] + [histograms.sums, below[:, :, -1]]
    names = [("_bucket", plain(bound)) for bound in BOUNDS] + [("_bucket", "+Inf"), ("_sum", ""), ("_count", "")]
    labels = [
        LabelSet.of({**dict(own), METRIC_NAME: metric.metric + suffix, "le": le})
        for suffix, le in names
        for own in metric.labels()
    ]
    return Block(metric, labels, np.tile(np.arange(metric.series), len(names)), np.concatenate(columns))


def requests(blocks: Sequence[Block]) -> Iterator[tuple[int, bytes]]:
    """Yield the number of samples and the body of each request, slice by slice of time through all blocks."""
    first_ms = min(block.metric.start_ms for block in blocks)
    encoded = [[_encode_labels(labels) for labels in block.labels] for block in blocks]
    for slice_ms in range(first_ms, END_MS, SLICE_MS):
        for block, labels in zip(blocks, encoded, strict=True):
            first = max(0, slice_ms - block.metric.start_ms) // block.metric.step_ms
            last = max(0, slice_ms + SLICE_MS - block.metric.start_ms) // block.metric.step_ms
            if first == last:
                continue
            rows = max(1, _REQUEST_SAMPLES // (last - first))
            for row in range(0, len(labels), rows):
                part = slice(row, min(row + rows, len(labels)))
                body = _floats if block.values is not None else _natives
                message = body(block, labels[part], part, first, last)
                yield (part.stop - part.start) * (last - first), _SNAPPY.compress(message, asbytes=True)


def _floats(block: Block, labels: Sequence[bytes], part: slice, first: int, last: int) -> bytes:
    assert block.values is not None
    samples = _samples(_times(block, part, first, last), block.values[part, first:last])
    return b"".join(
        piece
        for head, row in zip(labels, samples, strict=True)
        for piece in (b"\x0a" + varint(len(head) + row.nbytes) + head, row.data)
    )


def _times(block: Block, part: slice, first: int, last: int) -> Ints:
    rows = block.scraped_with[part]
    points = np.arange(first, last) * block.metric.step_ms
    return (block.metric.start_ms + block.metric.offsets_ms()[rows])[:, None] + points[None, :]


def _samples(times: Ints, values: Floats) -> np.ndarray:
    """Return the encoded samples, one row of bytes per series."""
    out = np.empty((*times.shape, _SAMPLE_BYTES), np.uint8)
    out[..., 0], out[..., 1] = 0x12, _SAMPLE_BYTES - 2
    out[..., 2] = 0x09
    out[..., 3:11] = np.ascontiguousarray(values, "<f8")[..., None].view(np.uint8)
    out[..., 11] = 0x10
    for byte in range(_TIME_BYTES):
        more = 0x80 if byte < _TIME_BYTES - 1 else 0
        out[..., 12 + byte] = times >> 7 * byte & 0x7F | more
    return out.reshape(len(times), -1)


def _natives(block: Block, labels: Sequence[bytes], part: slice, first: int, last: int) -> bytes:
    """Encode native histograms with integer counts, as clients send them. They are few, so a Python loop suffices."""
    assert block.histograms is not None
    counts = block.histograms.counts[part, first:last]
    deltas = np.diff(counts, axis=2, prepend=0)
    signed = np.where(deltas >= 0, deltas * 2, -deltas * 2 - 1)
    totals = counts.sum(axis=2)
    times = _times(block, part, first, last)
    out = []
    for row, head in enumerate(labels):
        span = integer(1, zigzag(first_bucket(part.start + row))) + integer(2, counts.shape[2])
        body = head
        for point in range(last - first):
            body += lengthy(
                4,
                integer(1, int(totals[row, point]))
                + double(3, float(block.histograms.sums[part.start + row, first + point]))
                + integer(4, zigzag(NATIVE_SCHEMA))
                + double(5, ZERO_THRESHOLD)
                + lengthy(11, span)
                + lengthy(12, b"".join(map(varint, signed[row, point].tolist())))
                + integer(15, int(times[row, point])),
            )
        out.append(lengthy(1, body))
    return b"".join(out)


def _encode_labels(labels: LabelSet) -> bytes:
    return b"".join(lengthy(1, lengthy(1, name.encode()) + lengthy(2, value.encode())) for name, value in labels)
