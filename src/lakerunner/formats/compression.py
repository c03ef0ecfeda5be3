"""Remove one layer of gzip or zstd, recognised by its first bytes, and enforce the size limits while expanding.

Names and headers are not trusted: HTTP clients often decompress an object on the way and keep its .gz name.
"""

from __future__ import annotations

import pyarrow as pa

from lakerunner.formats.limits import Limits, refuse
from lakerunner.model.errors import BadInput

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
#: A zstd stream may begin with a frame that decoders skip: its magic ends in 2A 4D 18.
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
#: The limits are checked after each step of this size, so a compression bomb costs at most this much beyond them.
_STEP_BYTES = 1 << 20
#: Below this size the ratio is not checked: a small object of one repeated line is no attack.
_RATIO_FLOOR_BYTES = 16 << 20


def expand(data: bytes, limits: Limits) -> bytes:
    """Return the decompressed content. Content that is not compressed is returned unchanged."""
    if len(data) > limits.compressed_bytes:
        raise refuse("compressed_bytes", limits.compressed_bytes, f"it has {len(data):,} bytes")
    if data.startswith(_GZIP):
        return _stream(data, "gzip", limits)
    if data.startswith(_ZSTD) or (data[1:4] == _ZSTD_SKIPPABLE and 0x50 <= data[0] <= 0x5F):
        return _stream(data, "zstd", limits)
    if len(data) > limits.expanded_bytes:
        raise refuse("expanded_bytes", limits.expanded_bytes, f"it has {len(data):,} bytes")
    return data


def _stream(data: bytes, codec: str, limits: Limits) -> bytes:
    """Decompress all gzip members or zstd frames in sequence, one step at a time."""
    pieces: list[bytes] = []
    expanded_bytes = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while piece := stream.read(_STEP_BYTES):
                pieces.append(piece)
                expanded_bytes += len(piece)
                _check(expanded_bytes, len(data), limits)
    except OSError as reason:
        raise BadInput(
            f"cannot decompress the object as {codec}: {reason}",
            where=f"after {expanded_bytes} expanded bytes",
            hint=f"check that it was uploaded in full: it begins with {data[:16].hex(' ')}, {len(data):,} bytes long",
        ) from None
    return b"".join(pieces)


def _check(expanded_bytes: int, compressed_bytes: int, limits: Limits) -> None:
    if expanded_bytes > limits.expanded_bytes:
        raise refuse("expanded_bytes", limits.expanded_bytes, "it expands beyond that")
    if expanded_bytes > max(_RATIO_FLOOR_BYTES, compressed_bytes * limits.ratio):
        raise refuse("ratio", limits.ratio, f"its {compressed_bytes:,} bytes expand beyond {expanded_bytes:,}")
