"""Detect the format of an object by its content, and by its name only where the content is ambiguous."""

from __future__ import annotations

import enum

from lakerunner.formats.csv import delimiter_of
from lakerunner.formats.decoded import excerpt_of
from lakerunner.formats.otlp import framing
from lakerunner.model.errors import BadInput

_SAMPLE_BYTES = 4_096
_FOREIGN = {b"Obj\x01": "Avro", b"ORC": "ORC", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
_BOM = b"\xef\xbb\xbf"
#: Control characters that do not occur in text. They do in protobuf: the tag of a second field is 0x12.
_CONTROL = bytes(set(range(0x20)) - set(b"\t\n\r\x0c\x1b"))


class Format(enum.StrEnum):
    EMPTY = "empty"
    PROTOBUF = "otlp-protobuf"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


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
    head = data.removeprefix(_BOM).lstrip()[:1]
    if head in (b"{", b"["):
        return Format.JSON
    suffix = _suffix(name_hint)
    if suffix in ("csv", "tsv"):
        return Format.CSV
    if suffix in ("json", "jsonl", "ndjson"):
        return Format.JSON
    # Unknown: the protobuf decoder gives the most precise reason why it cannot read it.
    return Format.PROTOBUF


def _text_format(data: bytes, name_hint: str) -> Format:
    body = data.removeprefix(_BOM).lstrip()
    if not body:
        return Format.EMPTY
    suffix = _suffix(name_hint)
    if body[:1] in (b"{", b"[") or suffix in ("json", "jsonl", "ndjson"):
        return Format.JSON
    first, _, rest = body.partition(b"\n")
    if suffix in ("csv", "tsv") or first.count(delimiter_of(first).encode()):
        return Format.CSV
    if any(line.lstrip()[:1] == b"{" for line in rest[:_SAMPLE_BYTES].split(b"\n")):
        return Format.JSON
    raise _unknown(data, "it is text, but neither JSON nor CSV with a header")


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
        hint=f"send OTLP, JSON lines, CSV or Parquet; it begins with {excerpt_of(data[:80])}",
    )
