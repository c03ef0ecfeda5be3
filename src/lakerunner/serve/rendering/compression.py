"""Bodies made smaller where the client takes them so. Never a stream: it would wait in a buffer."""

from __future__ import annotations

import zlib

import zstandard

#: Below this, the headers cost more than is saved.
_LEAST_BYTES = 1_024
#: Fast levels: an answer is read once, by a client that waits for it.
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
_GZIP_FORMAT = 31


def compressed(body: bytes, accept: str) -> tuple[bytes, str | None]:
    """The body in the best encoding of an Accept-Encoding header, with its name; None where it stays as it is."""
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
    found = set()
    for part in accept.lower().split(","):
        name, _, weight = part.partition(";")
        if weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            found.add(name.strip())
    return found
