"""String literals of the query languages, which follow Go's syntax."""

from __future__ import annotations

import re

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.tokens import Token

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_PLAIN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_QUOTED = {value: f"\\{letter}" for letter, value in _ESCAPES.items()} | {'"': '\\"'}


def quote(value: str) -> str:
    """A string in double quotes, with Go's escape sequences.

    >>> quote('a"b')
    '"a\\\\"b"'
    """
    return f'"{"".join(map(_escaped, value))}"'


def quote_unless_plain(name: str) -> str:
    """A label name, quoted only where the languages cannot write it without quotes.

    >>> quote_unless_plain("job"), quote_unless_plain("service.name")
    ('job', '"service.name"')
    """
    return name if _PLAIN_NAME.fullmatch(name) else quote(name)


def _escaped(c: str) -> str:
    if c in _QUOTED:
        return _QUOTED[c]
    if c.isprintable():
        return c
    code = ord(c)
    # Bytes that are not UTF-8 are represented by lone surrogates.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def string_end(text: str, at: int, language: str) -> int:
    """The index after the string literal whose opening quote is at `at`.

    >>> string_end('x = "a" and', 4, "row filter")
    7
    """
    opening = text[at]
    end = at + 1
    while end < len(text):
        if text[end] == opening:
            return end + 1
        if text[end] == "\n" and opening != "`":
            break
        end += 2 if text[end] == "\\" and opening != "`" else 1
    raise ParseError("unterminated quoted string", text=text, start=at, end=min(end, len(text)), language=language)


def unquote(text: str, token: Token, language: str) -> str:
    """The value of a string token, with Go's escape sequences resolved."""
    raw = token.text
    if raw[0] == "`" or "\\" not in raw:
        return raw[1:-1]
    out: list[bytes] = []
    at, end = 1, len(raw) - 1
    while at < end:
        if raw[at] != "\\":
            out.append(raw[at].encode(errors="surrogateescape"))
            at += 1
            continue
        piece, used = _escape(text, token, raw, at, language)
        out.append(piece)
        at += used
    # Bytes that are not UTF-8 survive as lone surrogates; callers that need valid text refuse them.
    return b"".join(out).decode(errors="surrogateescape")


def _escape(text: str, token: Token, raw: str, at: int, language: str) -> tuple[bytes, int]:
    """The bytes of the escape sequence at `at`, and how many characters it takes."""
    letter = raw[at + 1]
    if letter in _ESCAPES:
        return _ESCAPES[letter].encode(), 2
    if letter == raw[0]:
        return letter.encode(), 2
    digits = {"x": (2, 16), "u": (4, 16), "U": (8, 16)}.get(letter)
    start = at + 2
    if digits is None:
        digits, start = (3, 8), at + 1
    width, base = digits
    piece = raw[start : start + width]
    try:
        value = int(piece, base) if len(piece) == width else -1
        encoded = bytes([value]) if letter not in "uU" else chr(value).encode()
    except (ValueError, OverflowError, UnicodeEncodeError):
        reason = f"unknown escape sequence U+{ord(letter):04X} '{letter}'"
        raise ParseError(reason, text=text, start=token.start, end=token.end, language=language) from None
    return encoded, start - at + width
