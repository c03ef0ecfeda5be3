"""The tokens of TraceQL.

The name of an attribute begins after its scope (`span.`, `.`, …) and ends at white space or one of `{}()=~!<>&|^,`. So
`span.x+1` is a name. Parts in double quotes may hold anything.
"""

from __future__ import annotations

import re

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.syntax.strings import string_end
from lakerunner.query.syntax.tokens import END, Token
from lakerunner.query.traceql.fields import SPELLINGS

LANGUAGE = "TraceQL query"
STRING, INTEGER, FLOAT, DURATION, IDENTIFIER, ATTRIBUTE, INTRINSIC = (
    "string",
    "integer",
    "float",
    "duration",
    "identifier",
    "attribute",
    "intrinsic",
)
_SPACE = re.compile(r"(?:[ \t\r\n]+|/\*.*?\*/|//[^\n]*)+", re.DOTALL)
_SCOPE = re.compile(
    r"(?:parent\.(?:(?:span|resource|event|link|instrumentation)\.)?"
    r"|(?:span|resource|event|link|instrumentation)\.|\.)(?!\d)"
)
_DOTTED_NUMBER = re.compile(r"(?:span|resource|event|link|instrumentation|parent)\.")
_NAME_END = re.compile(r"[\s{}()=~!<>&|^,]")
_INTRINSIC = re.compile("|".join(sorted((re.escape(name) for name in SPELLINGS if ":" in name), key=len, reverse=True)))
_NUMBER = re.compile(r"(?:\d[\d_a-zA-Zµμ.]*(?:(?<=[eE])[+-]\d+)?|\.\d[\d_a-zA-Zµμ.]*(?:(?<=[eE])[+-]\d+)?)")
_WORD = re.compile(r"[^\W\d]\w*")
_OPERATORS = (
    "!>>", "!<<", "&>>", "&<<", "&&", "||", "!>", "!<", "!~", "!=", "&>", "&<", "&~", ">>", "<<", ">=", "<=", "=~",
    "{", "}", "(", ")", "=", "<", ">", "~", "!", "|", "+", "-", "*", "/", "%", "^", ",",
)  # fmt: skip
_INTEGER = re.compile(r"\d+")
#: A leading zero, where only octal digits may follow. The number is decimal all the same, as in Tempo.
_BAD_OCTAL = re.compile(r"0\d*[89]\d*(?![\d.eE])")
_FLOAT = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?")
_GO_DURATION = re.compile(r"(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+")
_LONG_DURATION = re.compile(r"(?:\d+y)?(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:\d+ms)?")


def tokenize(text: str) -> list[Token]:
    """All tokens, ended by one of kind `END`."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        if space := _SPACE.match(text, at):
            at = space.end()
            continue
        token = _token(text, at)
        tokens.append(token)
        at = token.end
    tokens.append(Token(END, "", len(text), len(text)))
    return tokens


def _token(text: str, at: int) -> Token:
    if text[at] in '"`':
        end = string_end(text, at, LANGUAGE)
        return Token(STRING, text[at:end], at, end)
    if found := _NUMBER.match(text, at):
        return _number(text, found)
    if scope := _SCOPE.match(text, at) or _DOTTED_NUMBER.match(text, at):
        end = _name_end(text, scope.end(), at)
        return Token(ATTRIBUTE, text[at:end], at, end)
    if found := _INTRINSIC.match(text, at):
        follows = _WORD.match(text, found.end())
        if not follows:
            return Token(INTRINSIC, found.group(), at, found.end())
    if found := _WORD.match(text, at):
        word = found.group()
        kind = INTRINSIC if word in SPELLINGS else IDENTIFIER
        return Token(kind, word, at, found.end())
    for operator in _OPERATORS:
        if text.startswith(operator, at):
            return Token(operator, operator, at, at + len(operator))
    raise ParseError(f"unexpected character {text[at]!r}", text=text, start=at, end=at + 1, language=LANGUAGE)


def _name_end(text: str, at: int, start: int) -> int:
    begin = at
    while at < len(text):
        if text[at] == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                if text[at] == "\\":
                    if text[at + 1 : at + 2] not in ('"', "\\"):
                        reason = "invalid escape sequence in the name of an attribute"
                        raise ParseError(reason, text=text, start=at, end=at + 2, language=LANGUAGE)
                    at += 1
                at += 1
            if at >= len(text):
                reason = "unterminated quoted name of an attribute"
                raise ParseError(reason, text=text, start=start, end=len(text), language=LANGUAGE)
            at += 1
        elif _NAME_END.match(text, at):
            break
        else:
            at += 1
    if at == begin:
        reason = f'"{text[start:begin]}" lacks the name of an attribute'
        raise ParseError(reason, text=text, start=start, end=begin, language=LANGUAGE)
    return at


def _number(text: str, found: re.Match[str]) -> Token:
    word, at, end = found.group(), found.start(), found.end()
    if _BAD_OCTAL.match(word):
        reason = f'invalid digit in octal literal: "{word}"; write it without leading zeros'
        raise ParseError(reason, text=text, start=at, end=end, language=LANGUAGE)
    if _INTEGER.fullmatch(word):
        kind = INTEGER
    elif _FLOAT.fullmatch(word):
        kind = FLOAT
    elif _GO_DURATION.fullmatch(word) or _LONG_DURATION.fullmatch(word):
        kind = DURATION
    else:
        raise ParseError(f'bad number or duration: "{word}"', text=text, start=at, end=end, language=LANGUAGE)
    return Token(kind, word, at, end)
