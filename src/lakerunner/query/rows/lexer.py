"""Filter text to tokens. Keywords are identifiers here: most of them may also name a column."""

from __future__ import annotations

import re

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.strings import string_end
from lakerunner.query.syntax.tokens import END, Token

LANGUAGE = "row filter"

IDENTIFIER = "identifier"
NUMBER = "number"
DURATION = "duration"
TIME = "time"
STRING = "string"

#: Nanoseconds of each unit of a duration, the largest first.
UNITS_NS = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+|\#[^\r\n]*)
  | (?P<time>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2}))?(?![\w.:-]))
  | (?P<duration>[+-]?(?:\d+(?:\.\d+)?(?:ns|us|ms|[dhms]))+(?![\w.]))
  | (?P<number>[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|(?:inf|nan)\b)(?![\w.]))
  | (?P<identifier>[a-zA-Z_][a-zA-Z0-9_]*)
  | (?P<op><=|>=|!=|=~|!~|[=<>(),])
    """,
    re.VERBOSE,
)
_GLUED = re.compile(r"[+-]?[\w.:-]+")


def tokenize(text: str) -> list[Token]:
    """All tokens, ended by one of kind `END`."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] in "\"'`":
            end = string_end(text, at, LANGUAGE)
            tokens.append(Token(STRING, text[at:end], at, end))
            at = end
            continue
        found = _TOKEN.match(text, at)
        if found is None:
            glued = _GLUED.match(text, at)
            end = glued.end() if glued else at + 1
            reason = (
                f'bad number, time or duration: "{text[at:end]}"' if glued else f"unexpected character {text[at]!r}"
            )
            raise ParseError(reason, text=text, start=at, end=end, language=LANGUAGE)
        kind, end = found.lastgroup or "", found.end()
        if kind == "op":
            tokens.append(Token(found.group(), found.group(), at, end))
        elif kind != "space":
            tokens.append(Token(kind, found.group(), at, end))
        at = end
    tokens.append(Token(END, "", len(text), len(text)))
    return tokens
