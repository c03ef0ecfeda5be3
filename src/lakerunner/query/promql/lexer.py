"""The PromQL lexer. Keywords are identifiers: most of them may also be metric or label names."""

from __future__ import annotations

import re

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.strings import string_end
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


def tokenize(text: str) -> list[Token]:
    """All tokens, followed by one of kind `END`. Inside brackets a colon is never part of a name."""
    tokens: list[Token] = []
    at, length, brackets = 0, len(text), 0
    while at < length:
        if text[at] in "\"'`":
            end = string_end(text, at, LANGUAGE)
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
    """Refuse `5mm` or `0x1g` as one bad number, instead of reading a number and a name."""
    if end < len(text) and (text[end].isalnum() or text[end] in "_."):
        literal = _NUMBER_LIKE.match(text, at)
        stop = literal.end() if literal else end + 1
        raise _bad(text, at, stop, f'bad number or duration syntax: "{text[at:stop]}"')


def _bad(text: str, start: int, end: int, reason: str) -> ParseError:
    return ParseError(reason, text=text, start=start, end=end, language=LANGUAGE)
