"""The LogQL lexer. Keywords ignore case; the name of a function is a keyword only before parentheses."""

from __future__ import annotations

import re

from lakerunner.model.errors import BadInput
from lakerunner.query.logql.durations import parse_duration_ns, parse_range_ns
from lakerunner.query.logql.functions import CONVERSIONS, RANGE_FUNCTIONS, VECTOR_FUNCTIONS
from lakerunner.query.logql.sizes import parse_size_bytes
from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.strings import string_end
from lakerunner.query.syntax.tokens import END, Token

LANGUAGE = "LogQL"

IDENTIFIER = "identifier"
STRING = "string"
NUMBER = "number"
DURATION = "duration"
SIZE = "size"
#: A duration in brackets.
RANGE = "range"
#: `--strict` and `--keep-empty`.
FLAG = "flag"
#: A name before parentheses, or before `by (…)` and `without (…)`. Its text is in lower case.
FUNCTION = "function"

#: Each of these words is its own kind of token, and can be no label's name.
KEYWORDS = frozenset(
    {
        "and",
        "bool",
        "by",
        "decolorize",
        "drop",
        "group_left",
        "group_right",
        "ignoring",
        "json",
        "keep",
        "label_format",
        "line_format",
        "logfmt",
        "of",
        "offset",
        "on",
        "or",
        "pattern",
        "regexp",
        "unless",
        "unpack",
        "unwrap",
        "variants",
        "without",
    }
)
_FUNCTIONS = frozenset({*RANGE_FUNCTIONS, *VECTOR_FUNCTIONS, *CONVERSIONS, "ip", "label_replace", "vector"})

_DIGITS = r"[0-9][0-9_]*"
_TOKEN = re.compile(
    rf"""
    (?P<space>[ \t\r\n]+|\#[^\n]*|//[^\n]*|/\*(?s:.*?)\*/)
  | (?P<flag>--(?:strict|keep-empty)(?![^\W\d_]|-))
  | (?P<hex>0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][-+]?{_DIGITS})?)
  | (?P<number>(?:{_DIGITS}(?:\.[0-9_]*)?|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?)
  | (?P<identifier>[a-zA-Z_][a-zA-Z0-9_]*)
  | (?P<op>\|=|\|~|\|>|!=|!~|!>|=~|==|>=|<=|[-+*/%^=<>(){{}},.|\]])
    """,
    re.VERBOSE,
)
_CALL = re.compile(r"\s*(?:\(|(?:by|without)\s*\()", re.IGNORECASE)
_DURATION_RUN = re.compile(r"[0-9.nuµmshdwy]*")
_NEGATIVE_DURATION = re.compile(r"-[0-9.][0-9.nuµmshdwy]*")
_SIZE_RUN = re.compile(r"[0-9.BikKMGTP]+|Ei?B|")
_LEADING_ZERO = re.compile(r"0[0-7_]*[89][0-9_]*")


def tokenize(text: str) -> list[Token]:
    """All tokens, followed by one of kind `END`."""
    tokens: list[Token] = []
    # A byte order mark is no part of the query.
    at, length = int(text.startswith("\ufeff")), len(text)
    while at < length:
        found = _TOKEN.match(text, at)
        if found is None:
            token = _other(text, at)
        elif found.lastgroup == "space":
            at = found.end()
            continue
        else:
            token = _token(text, found)
        tokens.append(token)
        at = token.end
    tokens.append(Token(END, "", length, length))
    return tokens


def _token(text: str, found: re.Match[str]) -> Token:
    piece, at, end = found.group(), found.start(), found.end()
    match found.lastgroup:
        case "identifier":
            return _word(text, at, end)
        case "number":
            return _number(text, at, end)
        case "hex":
            return Token(NUMBER, piece, at, end)
        case "flag":
            return Token(FLAG, piece, at, end)
    if piece == "-":
        return _negative_duration(text, at) or Token(piece, piece, at, end)
    return Token(piece, piece, at, end)


def _other(text: str, at: int) -> Token:
    """What the pattern does not know: strings, ranges, letters beyond ASCII, and everything that is no token."""
    char = text[at]
    if char in '"`':
        end = string_end(text, at, LANGUAGE)
        return Token(STRING, text[at:end], at, end)
    if char == "[":
        return _range(text, at)
    if char.isalpha():
        return _word(text, at, at + 1)
    if char == "'":
        raise _bad(text, at, at + 1, "unexpected single quote", 'write strings in double quotes or backticks: "…"')
    if char == "\0":
        raise _bad(text, at, at + 1, "unexpected character NUL")
    # Loki reads any other character as a name, so that the parser refuses it where no name may stand.
    return Token(IDENTIFIER, char, at, at + 1)


def _word(text: str, at: int, end: int) -> Token:
    """A name or keyword. Names may have letters and digits beyond ASCII."""
    while end < len(text) and (text[end] == "_" or text[end].isalpha() or text[end].isdecimal()):
        end += 1
    name = text[at:end]
    word = name.lower()
    if word in _FUNCTIONS:
        return Token(FUNCTION, word, at, end) if _CALL.match(text, end) else Token(IDENTIFIER, name, at, end)
    return Token(word if word in KEYWORDS else IDENTIFIER, name, at, end)


def _number(text: str, at: int, end: int) -> Token:
    """A number, or a duration or size that begins with one."""
    for kind, run, read in ((DURATION, _DURATION_RUN, parse_duration_ns), (SIZE, _SIZE_RUN, parse_size_bytes)):
        found = run.match(text, end)
        if found and found.group() and _reads(read, text[at : found.end()]):
            return Token(kind, text[at : found.end()], at, found.end())
    if _LEADING_ZERO.fullmatch(text, at, end):
        raise _bad(text, at, end, f"bad number {text[at:end]!r}: a leading zero stands for octal digits")
    return Token(NUMBER, text[at:end], at, end)


def _negative_duration(text: str, at: int) -> Token | None:
    found = _NEGATIVE_DURATION.match(text, at)
    # `-0` is a number.
    if found is None or found.group() == "-0" or not _reads(parse_duration_ns, found.group()):
        return None
    return Token(DURATION, text[at : found.end()], at, found.end())


def _reads(read: object, text: str) -> bool:
    assert callable(read)
    try:
        read(text)
    except BadInput:
        return False
    return True


def _range(text: str, at: int) -> Token:
    end = text.find("]", at) + 1
    if not end:
        raise _bad(text, at, len(text), "unclosed left bracket")
    try:
        parse_range_ns(text[at + 1 : end - 1])
    except BadInput as reason:
        raise _bad(text, at, end, reason.message, reason.hint) from None
    return Token(RANGE, text[at:end], at, end)


def _bad(text: str, start: int, end: int, reason: str, hint: str | None = None) -> ParseError:
    return ParseError(reason, text=text, start=start, end=end, language=LANGUAGE, hint=hint)
