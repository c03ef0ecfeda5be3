"""Detect the format of an object by its content, and by its name only where the content is ambiguous."""

from __future__ import annotations

import enum
import re

from lakerunner.formats.csv_header import is_csv
from lakerunner.formats.decoded import excerpt_of
from lakerunner.formats.otlp import framing
from lakerunner.model.errors import BadInput

_SAMPLE_BYTES = 16_384
_FOREIGN = {b"Obj\x01": "Avro", b"ORC": "ORC", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
#: Control characters that do not occur in text. They do in protobuf: the tag of a second field is 0x12.
_JSON_SUFFIXES = ("json", "jsonl", "ndjson")
_BINARY_SUFFIXES = ("binpb", "pb", "proto", "protobuf", "bin", "parquet")
#: An object, or an array of something that a log line in brackets does not begin with.
_JSON_HEAD = re.compile(rb'\{\s*(?:["}]|$)|\[\s*(?:[\[{"\]]|-?[\d.]+\s*(?:,|\]\s*(?:\n|$))|$)')
#: One control character in this many bytes is still text.
_ODD_BYTES = 50
_CONTROL = bytes(set(range(0x20)) - set(b"\t\n\r\x0c\x1b"))


class Format(enum.StrEnum):
    EMPTY = "empty"
    PROTOBUF = "otlp-protobuf"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    TEXT = "text"


def detect(data: bytes, name_hint: str) -> Format:
    """Return the format of decompressed content. Whether JSON is OTLP or plain records is decided by `read.py`."""
    if not data:
        return Format.EMPTY
    if data.startswith(b"PAR1"):
        return Format.PARQUET
    for magic, name in _FOREIGN.items():
        if data.startswith(magic):
            raise _unknown(data, f"it is {name}")
    if _is_text(data):
        return _text_format(data, name_hint)
    if framing.readings(data):
        return Format.PROTOBUF
    if _is_json(data.lstrip()):
        return Format.JSON
    suffix = _suffix(name_hint)
    if suffix in ("csv", "tsv"):
        return Format.CSV
    if suffix in _JSON_SUFFIXES:
        return Format.JSON
    if suffix not in _BINARY_SUFFIXES and _is_nearly_text(data):
        return _text_format(data, name_hint)
    # Unknown: the protobuf decoder gives the most precise reason why it cannot read it.
    return Format.PROTOBUF


def _text_format(data: bytes, name_hint: str) -> Format:
    body = data.lstrip()
    if not body:
        return Format.EMPTY
    suffix = _suffix(name_hint)
    if _is_json(body) or suffix in _JSON_SUFFIXES:
        return Format.JSON
    sample = body[:_SAMPLE_BYTES]
    if is_csv(sample, named=suffix in ("csv", "tsv"), is_whole=len(sample) == len(body)):
        return Format.CSV
    # Whether lines of JSON among other lines are read is the reader's choice: it depends on the signal.
    return Format.JSON if b'\n{"' in sample else Format.TEXT


def _is_json(body: bytes) -> bool:
    return _JSON_HEAD.match(body) is not None


def _is_nearly_text(data: bytes) -> bool:
    """Return whether this is text with few odd bytes in it, such as Latin-1, or NULs that a log rotation left."""
    sample = data.lstrip(b"\x00")[:_SAMPLE_BYTES]
    odd = len(sample) - len(sample.translate(None, _CONTROL))
    high = len(sample) - len(sample.translate(None, bytes(range(0x80, 0x100))))
    return bool(sample) and odd * _ODD_BYTES < len(sample) and high * 3 < len(sample)


def _is_text(data: bytes) -> bool:
    sample = data[:_SAMPLE_BYTES]
    if sample.translate(None, _CONTROL) != sample:
        return False
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as reason:
        # The sample may end in the middle of a character.
        return reason.start > len(sample) - 4 and len(data) > len(sample)
    return True


def _suffix(name_hint: str) -> str:
    """Return the suffix without compression suffixes: `json` for `a.json.gz`."""
    parts = name_hint.lower().rsplit("/", 1)[-1].split(".")
    while parts and parts[-1] in ("gz", "gzip", "zst", "zstd"):
        parts.pop()
    return parts[-1] if len(parts) > 1 else ""


def _unknown(data: bytes, reason: str) -> BadInput:
    return BadInput(
        f"cannot detect the format of the object: {reason}",
        where="byte 0",
        hint=f"send OTLP, JSON lines, CSV, text or Parquet; it begins with {excerpt_of(data[:80])}",
    )
