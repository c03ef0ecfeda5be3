"""PromQL text to tokens. Keywords stay identifiers here: most of them may also be metric or label names."""

from __future__ import annotations

import re

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.tokens import END, Token

LANGUAGE = "PromQL"

IDENTIFIER = "identifier"
METRIC_IDENTIFIER = "metric identifier"  # An identifier with a colon: only metric names have one.
NUMBER = "number"
DURATION = "duration"
STRING = "string"

_DURATION_UNITS = r"(?:(?:\d+y)?(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m(?!s))?(?:\d+s)?(?:\d+ms)?)"
#: Digits, with single underscores between them.
_DIGITS = r"\d+(?:_\d+)*"
_HEX = r"0[xX]_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_TOKEN = re.compile(
    rf"""
    (?P<space>[ \t\r\n]+|\#[^\r\n]*)
  | (?P<hex>{_HEX})
  | (?P<duration>(?=\d){_DURATION_UNITS}(?<=[a-z])(?![\w.]))
  | (?P<number>(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?)
  | (?P<identifier>[a-zA-Z_:][a-zA-Z0-9_:]*)
  | (?P<op><=|>=|==|!=|=~|!~|</|>/|[-+*/%^=<>@()\[\]{{}},:])
    """,
    re.VERBOSE,
)
_NUMBER_LIKE = re.compile(r"[\w.]+")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}

_QUOTED = {value: f"\\{letter}" for letter, value in _ESCAPES.items()} | {'"': '\\"'}


def tokenize(text: str) -> list[Token]:
    """All tokens, ended by one of kind `END`. Inside braces and brackets a colon is never part of a name."""
    tokens: list[Token] = []
    at, length, brackets = 0, len(text), 0
    while at < length:
        if text[at] in "\"'`":
            end = _string_end(text, at)
            tokens.append(Token(STRING, text[at:end], at, end))
            at = end
            continue
        found = _TOKEN.match(text, at)
        if found is None:
            raise _bad(text, at, at + 1, f"unexpected character {text[at]!r}")
        kind, piece = found.lastgroup or "", found.group()
        if kind != "space":
            token = _token(text, kind, piece, at, brackets)
            brackets += (token.kind == "[") - (token.kind == "]")
            tokens.append(token)
            piece = token.text
        at += len(piece)
    tokens.append(Token(END, "", length, length))
    return tokens


def _token(text: str, kind: str, piece: str, at: int, brackets: int) -> Token:
    if kind in ("number", "hex", "duration"):
        _refuse_glued(text, at, at + len(piece))
        return Token(DURATION if kind == "duration" else NUMBER, piece, at, at + len(piece))
    if kind == "identifier":
        if brackets and ":" in piece:
            piece = piece.split(":", 1)[0] or ":"
            if piece == ":":
                return Token(":", ":", at, at + 1)
        kind = METRIC_IDENTIFIER if ":" in piece else IDENTIFIER
        return Token(kind, piece, at, at + len(piece))
    return Token(piece, piece, at, at + len(piece))


def _refuse_glued(text: str, at: int, end: int) -> None:
    """`5mm` or `0x1g` is one bad number, not a number and a name."""
    if end < len(text) and (text[end].isalnum() or text[end] in "_."):
        whole = _NUMBER_LIKE.match(text, at)
        stop = whole.end() if whole else end + 1
        raise _bad(text, at, stop, f'bad number or duration syntax: "{text[at:stop]}"')


def _string_end(text: str, at: int) -> int:
    quote = text[at]
    end = at + 1
    while end < len(text):
        if text[end] == quote:
            return end + 1
        if text[end] == "\n" and quote != "`":
            break
        end += 2 if text[end] == "\\" and quote != "`" else 1
    raise _bad(text, at, min(end, len(text)), "unterminated quoted string")


def unquote(text: str, token: Token) -> str:
    """The value of a string token, with Go's escape sequences read."""
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
        piece, used = _escape(text, token, raw, at)
        out.append(piece)
        at += used
    # Bytes that are not UTF-8 survive as lone surrogates: whoever needs proper text can tell, and says so.
    return b"".join(out).decode(errors="surrogateescape")


def _escape(text: str, token: Token, raw: str, at: int) -> tuple[bytes, int]:
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
        raise _bad(text, token.start, token.end, reason) from None
    return encoded, start - at + width


def quote(value: str) -> str:
    """A string as PromQL writes it.

    >>> quote('a"b')
    '"a\\\\"b"'
    """
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(c: str) -> str:
    if c in _QUOTED:
        return _QUOTED[c]
    if c.isprintable():
        return c
    code = ord(c)
    # A byte that is not UTF-8 is a lone surrogate here.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _bad(text: str, start: int, end: int, reason: str) -> ParseError:
    return ParseError(reason, text=text, start=start, end=end, language=LANGUAGE)
