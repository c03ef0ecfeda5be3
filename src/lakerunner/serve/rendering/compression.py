"""Compression of response bodies. Streams are never compressed: their pieces would wait in the compressor's buffer."""

from __future__ import annotations

import zlib

import zstandard

#: For smaller bodies, the headers cost more than compression saves.
_LEAST_BYTES = 1_024
#: Fast levels: an answer is sent once, to a client that is waiting for it.
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
#: zlib's window bits for the largest window (15) with a gzip header (16).
_GZIP_FORMAT = 31


def compressed(body: bytes, accept: str) -> tuple[bytes, str | None]:
    """Compress the body with the best encoding of an Accept-Encoding header.

    Returns the body and the encoding's name, or the body unchanged and None.
    """
    if len(body) < _LEAST_BYTES:
        return body, None
    accepted = _accepted(accept)
    if "zstd" in accepted:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(body), "zstd"
    if "gzip" in accepted or "*" in accepted:
        packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
        return packer.compress(body) + packer.flush(), "gzip"
    return body, None


def _accepted(accept: str) -> set[str]:
    accepted = set()
    for part in accept.lower().split(","):
        name, _, weight = part.partition(";")
        if weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            accepted.add(name.strip())
    return accepted
