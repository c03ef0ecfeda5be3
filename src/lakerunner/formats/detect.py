"""Which format an object is in: told by its content, and by its name only where the content leaves it open."""

from __future__ import annotations

import enum

from lakerunner.formats.csv import delimiter_of
from lakerunner.formats.decoded import excerpt_of
from lakerunner.formats.otlp import framing
from lakerunner.model.errors import BadInput

_LOOKED_AT_BYTES = 4_096
_FOREIGN = {b"Obj\x01": "Avro", b"ORC": "ORC", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
_BOM = b"\xef\xbb\xbf"
#: Control characters that text does not have. Protobuf has them: the tag of a second field is 0x12.
_CONTROL = bytes(set(range(0x20)) - set(b"\t\n\r\x0c\x1b"))


class Format(enum.StrEnum):
    EMPTY = "empty"
    PROTOBUF = "otlp-protobuf"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def detect(data: bytes, name_hint: str) -> Format:
    """The format of expanded content. JSON is told further by the reader: OTLP or plain records."""
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
    # Whatever it is, the decoder of protobuf says best why it is not that.
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
    if any(line.lstrip()[:1] == b"{" for line in rest[:_LOOKED_AT_BYTES].split(b"\n")):
        return Format.JSON
    raise _unknown(data, "it is text, but neither JSON nor CSV with a header")


def _is_text(data: bytes) -> bool:
    sample = data[:_LOOKED_AT_BYTES]
    if sample.translate(None, _CONTROL) != sample:
        return False
    try:
        # The sample may end within a character.
        sample.decode("utf-8")
    except UnicodeDecodeError as reason:
        return reason.start > len(sample) - 4 and len(data) > len(sample)
    return True


def _suffix(name_hint: str) -> str:
    """The suffix that tells of the content: that of `a.json.gz` is json."""
    parts = name_hint.lower().rsplit("/", 1)[-1].split(".")
    while parts and parts[-1] in ("gz", "gzip", "zst", "zstd"):
        parts.pop()
    return parts[-1] if len(parts) > 1 else ""


def _unknown(data: bytes, reason: str) -> BadInput:
    return BadInput(
        f"cannot tell the format of the object: {reason}",
        where="byte 0",
        hint=f"send OTLP, JSON lines, CSV or Parquet; it begins with {excerpt_of(data[:80])}",
    )
