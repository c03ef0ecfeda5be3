r"""The ASCII characters that a part of a regular expression takes, as a number with 128 bits, one per character.

Characters outside ASCII are in no set: texts that have some are left to RE2.
"""

from __future__ import annotations

from lakerunner.query.syntax import re2_syntax
from lakerunner.query.syntax.re2_syntax import Dot, Letter, NamedClass, NotRead, OneOf, Span

_ASCII = 128


def _set_of(low: int, high: int) -> int:
    high = min(high, _ASCII - 1)
    return (1 << (high + 1)) - (1 << low) if low <= high else 0


_EVERY = _set_of(0, _ASCII - 1)
_UPPER, _LOWER = _set_of(ord("A"), ord("Z")), _set_of(ord("a"), ord("z"))
_CASE = ord("a") - ord("A")


def ascii_set(node: Letter | Dot | NamedClass | OneOf) -> int:
    """The set of a node that takes one character. Raises `NotRead`.

    >>> ascii_set(Letter("a", ignore_case=True)) == 1 << ord("a") | 1 << ord("A")
    True
    """
    match node:
        case Letter(text, ignore_case):
            return _spanned(Span(ord(text), ord(text)), ignore_case)
        case Dot(newline):
            return _EVERY if newline else _EVERY & ~(1 << ord("\n"))
        case OneOf(members, negated, ignore_case):
            found = 0
            for member in members:
                found |= _spanned(member, ignore_case) if isinstance(member, Span) else ascii_set(member)
            return _EVERY & ~found if negated else found
        case NamedClass(text):
            raise NotRead(f"the class {text}")


def _spanned(span: Span, ignore_case: bool) -> int:
    found = _set_of(span.low, span.high)
    if not ignore_case:
        return found
    # The Kelvin sign is a k, and the long s an s, if case is ignored.
    if span.high >= _ASCII:
        raise NotRead("letters outside ASCII in any case")
    return found | (found & _UPPER) << _CASE | (found & _LOWER) >> _CASE


#: The characters of words, whose borders `\b` is about.
WORD = ascii_set(OneOf(re2_syntax.WORD))
