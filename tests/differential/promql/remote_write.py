"""Remote write 2.0, the sender's half: series as a protobuf request in a snappy block.

Written out by hand because the message is small and the suite should not need a compiler of protocols for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from tests.components.protobuf import double, integer, lengthy, varint, zigzag
from tests.differential.promql.samples import Sample

HEADERS = {
    "Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "2.0.0",
    "User-Agent": "lakerunner-differential",
}

#: A literal of a snappy block says its length in up to four bytes; two are enough at this size.
_LITERAL_BYTES = 65_536


def snappy_block(raw: bytes) -> bytes:
    """A valid snappy block that stores instead of compressing: one literal after another."""
    out = [varint(len(raw))]
    for at in range(0, len(raw), _LITERAL_BYTES):
        piece = raw[at : at + _LITERAL_BYTES]
        out += [bytes([61 << 2]), struct.pack("<H", len(piece) - 1), piece]
    return b"".join(out)


def write_request(series: Iterable[tuple[LabelSet, Sequence[Sample]]]) -> bytes:
    """The message. Samples of one entry are all floats or all histograms: the protocol has them apart."""
    symbols: dict[str, int] = {"": 0}
    entries = []
    for labels, samples in series:
        refs = b"".join(varint(symbols.setdefault(text, len(symbols))) for pair in labels for text in pair)
        body = lengthy(1, refs)
        for sample in samples:
            if isinstance(sample.value, Histogram):
                body += lengthy(3, _histogram(sample.value, sample.time_ms))
            else:
                body += lengthy(2, _float_sample(sample.value, sample.time_ms))
        entries.append(lengthy(5, body))
    return b"".join([lengthy(4, text.encode()) for text in symbols] + entries)


def _float_sample(value: float, time_ms: int) -> bytes:
    return double(1, value) + integer(2, time_ms)


def _histogram(histogram: Histogram, time_ms: int) -> bytes:
    out = double(2, histogram.count) + double(3, histogram.sum) + integer(4, zigzag(histogram.schema))
    out += double(5, histogram.zero_threshold) + double(7, histogram.zero_count)
    out += _spans(8, histogram.neg_index) + _doubles(10, histogram.neg_count.tolist())
    out += _spans(11, histogram.pos_index) + _doubles(13, histogram.pos_count.tolist())
    out += integer(14, int(histogram.hint)) + integer(15, time_ms)
    return out + _doubles(16, list(histogram.bounds))


def _spans(field: int, index: np.ndarray) -> bytes:
    """Runs of neighbouring buckets, each with its distance from the end of the run before."""
    out, end = b"", 0
    for run in np.split(index, np.flatnonzero(np.diff(index) != 1) + 1):
        if len(run):
            out += lengthy(field, integer(1, zigzag(int(run[0]) - end)) + integer(2, len(run)))
            end = int(run[-1]) + 1
    return out


def _doubles(field: int, values: list[float]) -> bytes:
    return lengthy(field, struct.pack(f"<{len(values)}d", *values)) if values else b""
