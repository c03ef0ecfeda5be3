"""Remote write 2.0, the sender's half: series as a protobuf request in a snappy block.

Written out by hand because the message is small and the suite should not need a compiler of protocols for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.promql.histogram import Histogram
from tests.differential.samples import Sample

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
    out = [_varint(len(raw))]
    for at in range(0, len(raw), _LITERAL_BYTES):
        piece = raw[at : at + _LITERAL_BYTES]
        out += [bytes([61 << 2]), struct.pack("<H", len(piece) - 1), piece]
    return b"".join(out)


def write_request(series: Iterable[tuple[LabelSet, Sequence[Sample]]]) -> bytes:
    """The message. Samples of one entry are all floats or all histograms: the protocol has them apart."""
    symbols: dict[str, int] = {"": 0}
    entries = []
    for labels, samples in series:
        refs = b"".join(_varint(symbols.setdefault(text, len(symbols))) for pair in labels for text in pair)
        body = _bytes(1, refs)
        for sample in samples:
            if isinstance(sample.value, Histogram):
                body += _bytes(3, _histogram(sample.value, sample.time_ms))
            else:
                body += _bytes(2, _float_sample(sample.value, sample.time_ms))
        entries.append(_bytes(5, body))
    return b"".join([_bytes(4, text.encode()) for text in symbols] + entries)


def _float_sample(value: float, time_ms: int) -> bytes:
    return _double(1, value) + _integer(2, time_ms)


def _histogram(histogram: Histogram, time_ms: int) -> bytes:
    out = _double(2, histogram.count) + _double(3, histogram.sum) + _integer(4, _zigzag(histogram.schema))
    out += _double(5, histogram.zero_threshold) + _double(7, histogram.zero_count)
    out += _spans(8, histogram.neg_index) + _doubles(10, histogram.neg_count.tolist())
    out += _spans(11, histogram.pos_index) + _doubles(13, histogram.pos_count.tolist())
    out += _integer(14, int(histogram.hint)) + _integer(15, time_ms)
    return out + _doubles(16, list(histogram.bounds))


def _spans(field: int, index: np.ndarray) -> bytes:
    """Runs of neighbouring buckets, each with its distance from the end of the run before."""
    out, end = b"", 0
    for run in np.split(index, np.flatnonzero(np.diff(index) != 1) + 1):
        if len(run):
            out += _bytes(field, _integer(1, _zigzag(int(run[0]) - end)) + _integer(2, len(run)))
            end = int(run[-1]) + 1
    return out


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _doubles(field: int, values: list[float]) -> bytes:
    return _bytes(field, struct.pack(f"<{len(values)}d", *values)) if values else b""
