"""What a regular expression of a label filter accepts, which in Loki is not always the whole value.

Loki replaces patterns made of literals, `.*` and alternatives by plain searches. In doing so it forgets that a label's
pattern is anchored: `trace_id=~"0.*"` accepts every id with a zero in it, and `path=~"/a|/b"`, which has a common
beginning, every path that contains one of them. `level=~"warn|error"` is not affected. We answer as Loki does. Other
patterns match from begin to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax import re2_syntax as tree
from lakerunner.query.syntax.re2_syntax import Dot, Either, Letter, Node, NotRead, Repeated, re2_tree

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
        return _without_everything(_searches(_simple(re2_tree(pattern))))
    except (_NotSimple, NotRead):
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


def _simple(node: Node) -> _Node:
    """The node as Go's parser has it, if it consists of literals, `.*`, `.+` and alternatives."""
    match node:
        case Letter(text, ignore_case):
            return _Literal(text, ignore_case)
        case Repeated(Dot(newline=False), 0 | 1 as least, None):
            return _Dots(least == 1)
        case tree.Sequence(parts):
            return _concat([_simple(part) for part in parts])
        case Either(parts):
            return _choice([_simple(part) for part in parts])
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
    """Alternatives as Go reads them: of single characters it makes a class before it looks for common beginnings."""
    return _factored(_classed(branches))


def _factored(branches: Sequence[_Node]) -> _Node:
    """Alternatives, of which neighbours with a common beginning share it. Single characters that remain are a class."""
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
            rest = _factored([_without(branch, len(prefix.text)) for branch in flat[start:end]])
            factored.append(_concat([prefix, rest]))
        start = end
    merged: list[_Node] = []
    for node in _classed(factored):
        if not (merged and isinstance(node, _Nothing) and isinstance(merged[-1], _Nothing)):
            merged.append(node)
    return merged[0] if len(merged) == 1 else _Choice(tuple(merged))


def _classed(nodes: Sequence[_Node]) -> list[_Node]:
    """With one class in place of neighbours that are single characters; the same character twice is itself."""
    found: list[_Node] = []
    for node in nodes:
        if not found or not _is_single(node) or not _is_single(found[-1]):
            found.append(node)
        elif node != found[-1]:
            found[-1] = _Class()
    return found


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
