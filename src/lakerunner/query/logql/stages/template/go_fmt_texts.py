"""Texts by the verbs of Go's `fmt`, and the flags that all verbs share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.query.logql.stages.template.go_types import to_bytes

_ESCAPES = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v", "\\": "\\"}

#: What cannot stand between back quotes: the quote itself, control characters but the tab, and broken characters.
_NOT_RAW = re.compile("[`\x00-\x08\x0a-\x1f\x7f\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Spec:
    """The flags of one verb."""

    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None
    #: `%#v`, whose flag means something else.
    sharp_v: bool = False


def padded(text: str, spec: Spec) -> str:
    """Padded to the width, which counts characters."""
    if spec.width is None or len(text) >= spec.width:
        return text
    pad = spec.width - len(text)
    if spec.minus:
        return text + " " * pad
    return ("0" if spec.zero else " ") * pad + text


def formatted_text(value: str, verb: str, spec: Spec) -> str:
    """A text by one of the verbs `%s`, `%q`, `%x` and `%X`."""
    if verb in "xX":
        return padded(_hex(to_bytes(value), verb, spec), spec)
    if spec.precision is not None:
        value = value[: spec.precision]
    if verb == "q":
        value = quoted_text(value, spec.sharp, spec.plus)
    return padded(value, spec)


def _hex(raw: bytes, verb: str, spec: Spec) -> str:
    if spec.precision is not None:
        raw = raw[: spec.precision]
    if not raw:
        return ""
    prefix = ("0X" if verb == "X" else "0x") if spec.sharp else ""
    digits = raw.hex().upper() if verb == "X" else raw.hex()
    if not spec.space:
        return prefix + digits
    return " ".join(prefix + digits[at : at + 2] for at in range(0, len(digits), 2))


def quoted_text(value: str, raw: bool = False, ascii_only: bool = False) -> str:
    """The text as a string literal; between back quotes if `raw` and possible.

    >>> print(quoted_text('a"b\\n'))
    "a\\"b\\n"
    """
    if raw and not _NOT_RAW.search(value):
        return f"`{value}`"
    return '"' + "".join(escaped_rune(c, '"', ascii_only) for c in value) + '"'


def escaped_rune(c: str, quote: str, ascii_only: bool = False) -> str:
    code = ord(c)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if c == quote or c == "\\":
        return "\\" + c
    if c.isprintable() and (code < 0x80 or not ascii_only):
        return c
    if c in _ESCAPES:
        return "\\" + _ESCAPES[c]
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
