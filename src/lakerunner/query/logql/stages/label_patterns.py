"""What a regular expression of a label filter accepts, which in Loki is not always the whole value.

Loki replaces patterns made of literals, `.*` and alternatives by plain searches. In doing so it forgets that a label's
pattern is anchored: `trace_id=~"0.*"` accepts every id with a zero in it, and `path=~"/a|/b"`, which has a common
beginning, every path that contains one of them. `level=~"warn|error"` is not affected. We answer as Loki does. Other
patterns match from begin to end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from lakerunner.query.series.matchers import Matcher, MatchKind

_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
#: Characters that mean something else than themselves, beside those that the parser below reads.
_UNKNOWN = frozenset("^$[]{}*+?")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(-[a-zA-Z]+)?([:)])")
_NAMED = re.compile(r"\(\?P?<\w+>")
#: Concatenations of more parts are not simplified.
_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class Search:
    """A plain search: the value contains the text, or equals it."""

    text: str
    anywhere: bool
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """Any value but the empty one."""


@dataclass(frozen=True, slots=True)
class Everything:
    """Any value."""


Simple: TypeAlias = Search | NotEmpty | Everything


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Matches the empty text."""


@dataclass(frozen=True, slots=True)
class _Dots:
    """`.*`, or `.+` if at least one character is needed."""

    some: bool


@dataclass(frozen=True, slots=True)
class _Class:
    """One of several characters."""


@dataclass(frozen=True, slots=True)
class _Concat:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    parts: tuple[_Node, ...]


_Node: TypeAlias = _Literal | _Nothing | _Dots | _Class | _Concat | _Choice


class _NotSimple(Exception):
    """The pattern is not one that Loki simplifies."""


@lru_cache(maxsize=128)
def simplified(pattern: str) -> tuple[Simple, ...] | None:
    """The searches of which one must succeed, or None: the pattern must match the whole value.

    >>> simplified("0.*")
    (Search(text='0', anywhere=True, ignore_case=False),)
    >>> simplified("warn|error")[0]
    Search(text='warn', anywhere=False, ignore_case=False)
    >>> simplified("[0-9]+")
    """
    try:
        return _without_everything(_searches(_Parser(pattern).whole()))
    except (_NotSimple, RecursionError):
        return None


def accepted_texts(matcher: Matcher) -> Sequence[str] | None:
    """The only values that a label filter accepts, sorted; None if they cannot be listed.

    >>> accepted_texts(Matcher("level", MatchKind.REGEX, "warn|error"))
    ['error', 'warn']
    """
    if matcher.kind is MatchKind.EQUAL:
        return [matcher.value]
    searches = simplified(matcher.value) if matcher.kind is MatchKind.REGEX else None
    if searches is None:
        return None
    texts = {each.text for each in searches if isinstance(each, Search) and not each.anywhere and not each.ignore_case}
    return sorted(texts) if len(texts) == len(searches) else None


def _without_everything(found: Sequence[Simple]) -> tuple[Simple, ...]:
    """Alternatives beside one that accepts everything count alone, odd as it is."""
    telling = tuple(each for each in found if not isinstance(each, Everything))
    return telling or (Everything(),)


def _searches(node: _Node) -> list[Simple]:
    match node:
        case _Choice(parts):
            return list(_without_everything([each for part in parts for each in _searches(part)]))
        case _Concat():
            return _of_parts(node, None)
        case _Literal(text, ignore_case):
            return [Search(text, False, ignore_case)]
        case _Dots(some):
            return [NotEmpty() if some else Everything()]
        case _Nothing():
            return [Everything()]
        case _Class():
            raise _NotSimple


def _of_parts(node: _Concat, before: _Literal | None) -> list[Simple]:
    parts = [part for part in node.parts if not isinstance(part, _Nothing)]
    if len(parts) > _MOST_PARTS:
        raise _NotSimple
    found: list[Simple] = []
    base, literals = before, 0
    for part in parts:
        match part:
            case _Literal(text, ignore_case) if not literals:
                literals += 1
                base = _Literal((base.text if base else "") + text, ignore_case)
            case _Choice(choices) if base is not None:
                found += [each for choice in choices for each in _after(base, choice)]
            case _Dots(False):
                pass
            case _:
                raise _NotSimple
    if found:
        return found
    if base is None:
        raise _NotSimple
    return [_anywhere(base.text, base.ignore_case)]


def _after(base: _Literal, choice: _Node) -> list[Simple]:
    match choice:
        case _Literal(text, ignore_case):
            if ignore_case and not base.ignore_case:
                raise _NotSimple
            return [_anywhere(base.text + text, base.ignore_case)]
        case _Concat():
            return _of_parts(choice, base)
        case _Nothing() | _Dots(False):
            return [_anywhere(base.text, base.ignore_case)]
    raise _NotSimple


def _anywhere(text: str, ignore_case: bool) -> Simple:
    return Search(text, True, ignore_case) if text else Everything()


class _Parser:
    """Reads the patterns that consist of literals, `.*`, `.+`, groups and alternatives, as Go's parser does."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at = pattern, 0

    def whole(self) -> _Node:
        node = self._choice(False)
        if self._at < len(self._text):
            raise _NotSimple
        return node

    def _choice(self, ignore_case: bool) -> _Node:
        branches: list[_Node] = []
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                branches.append(_concat(parts))
                parts = []
            elif flags := _FLAGS.match(self._text, self._at):
                ignore_case = self._flagged(flags, ignore_case, parts)
            else:
                parts.append(self._part(ignore_case))
        return _choice([*branches, _concat(parts)])

    def _flagged(self, flags: re.Match[str], ignore_case: bool, parts: list[_Node]) -> bool:
        """Flags for the rest of the group, or for a group of their own."""
        set_flags, cleared, end = flags.groups()
        if set(set_flags) - {"i"} or cleared:
            raise _NotSimple
        self._at = flags.end()
        inner = ignore_case or "i" in set_flags
        if end == ")":
            return inner
        parts.append(self._closed(inner))
        return ignore_case

    def _closed(self, ignore_case: bool) -> _Node:
        node = self._choice(ignore_case)
        if self._text[self._at : self._at + 1] != ")":
            raise _NotSimple
        self._at += 1
        self._unrepeated()
        return node

    def _part(self, ignore_case: bool) -> _Node:
        c = self._text[self._at]
        if c == "(":
            named = _NAMED.match(self._text, self._at)
            self._at = named.end() if named else self._at + 1
            return self._closed(ignore_case)
        if c == ".":
            return self._dots()
        if c == "\\":
            self._at += 1
            c = self._text[self._at : self._at + 1]
            if c not in _PUNCTUATION:
                raise _NotSimple
        elif c in _UNKNOWN:
            raise _NotSimple
        self._at += 1
        self._unrepeated()
        return _Literal(c, ignore_case)

    def _dots(self) -> _Node:
        times = self._text[self._at + 1 : self._at + 2]
        if times not in ("*", "+") or not times:
            raise _NotSimple
        self._at += 2
        if self._text[self._at : self._at + 1] == "?":
            self._at += 1
        self._unrepeated()
        return _Dots(times == "+")

    def _unrepeated(self) -> None:
        if self._text[self._at : self._at + 1] in ("*", "+", "?", "{") and self._at < len(self._text):
            raise _NotSimple


def _concat(parts: Sequence[_Node]) -> _Node:
    """Parts one after the other, literals next to each other joined."""
    joined: list[_Node] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, _Literal) and isinstance(last, _Literal) and part.ignore_case == last.ignore_case:
            joined[-1] = _Literal(last.text + part.text, last.ignore_case)
        else:
            joined.append(part)
    if not joined:
        return _Nothing()
    return joined[0] if len(joined) == 1 else _Concat(tuple(joined))


def _choice(branches: Sequence[_Node]) -> _Node:
    """Alternatives. As in Go, neighbours with a common beginning share it, and single characters become a class."""
    if len(branches) == 1:
        return branches[0]
    flat = [each for branch in branches for each in (branch.parts if isinstance(branch, _Choice) else (branch,))]
    factored: list[_Node] = []
    start = 0
    while start < len(flat):
        prefix, end = _leading(flat[start]), start + 1
        while prefix and end < len(flat) and (shared := _shared(prefix, _leading(flat[end]))):
            prefix, end = shared, end + 1
        if prefix is None or end == start + 1:
            factored.append(flat[start])
        else:
            rest = _choice([_without(branch, len(prefix.text)) for branch in flat[start:end]])
            factored.append(_concat([prefix, rest]))
        start = end
    merged: list[_Node] = []
    for node in factored:
        both = merged and {type(merged[-1]), type(node)} <= {_Literal, _Class} and _is_single(merged[-1])
        if both and _is_single(node):
            merged[-1] = _Class()
        elif not (merged and isinstance(node, _Nothing) and isinstance(merged[-1], _Nothing)):
            merged.append(node)
    return merged[0] if len(merged) == 1 else _Choice(tuple(merged))


def _is_single(node: _Node) -> bool:
    return isinstance(node, _Class) or (isinstance(node, _Literal) and len(node.text) == 1)


def _leading(node: _Node) -> _Literal | None:
    first = node.parts[0] if isinstance(node, _Concat) else node
    return first if isinstance(first, _Literal) else None


def _shared(one: _Literal, other: _Literal | None) -> _Literal | None:
    if other is None or one.ignore_case != other.ignore_case:
        return None
    size = 0
    while size < min(len(one.text), len(other.text)) and one.text[size] == other.text[size]:
        size += 1
    return _Literal(one.text[:size], one.ignore_case) if size else None


def _without(node: _Node, size: int) -> _Node:
    """What follows the first characters, which are literal."""
    first, *others = node.parts if isinstance(node, _Concat) else (node,)
    assert isinstance(first, _Literal)
    rest = first.text[size:]
    return _concat([_Literal(rest, first.ignore_case), *others] if rest else others)
