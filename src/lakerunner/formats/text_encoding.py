"""Bring text into plain UTF-8: byte-order marks, UTF-16, and bytes that are no UTF-8."""

from __future__ import annotations

import codecs

from lakerunner.formats.decoded import Tally

_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def without_mark(data: bytes) -> bytes:
    """Return text without its byte-order mark, and UTF-16 as UTF-8. Content without a mark is returned unchanged."""
    if data.startswith(codecs.BOM_UTF8):
        return data[len(codecs.BOM_UTF8) :]
    encoding = _UTF16.get(data[:2])
    if encoding is None or len(data) % 2:
        return data
    try:
        return data[2:].decode(encoding).encode()
    except UnicodeDecodeError:
        # Not UTF-16, although it begins like it.
        return data


def valid_text(data: bytes, tally: Tally) -> bytes:
    """Replace invalid UTF-8 by U+FFFD: Arrow would refuse the whole object."""
    try:
        data.decode("utf-8")
        return data
    except UnicodeDecodeError:
        repaired = data.decode("utf-8", "replace")
        tally.shorten("invalid_utf8", repaired.count("\ufffd"))
        return repaired.encode()
