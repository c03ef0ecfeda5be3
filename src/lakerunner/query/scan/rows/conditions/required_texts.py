"""The texts that every match of a regular expression contains. Rows without them need no matching.

For every part of the expression the analysis keeps either all texts that it matches, while these are few, or clauses:
of the texts of a clause, every match contains at least one. Whatever it does not understand may match anything, so an
answer may say too little, but is never wrong.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lakerunner.query.scan.rows.conditions.substring import Needle
from lakerunner.query.syntax.re2_syntax import (
    SPACE,
    Dot,
    Either,
    Letter,
    NamedClass,
    Node,
    NotRead,
    OneOf,
    Place,
    Repeated,
    Sequence,
    Span,
    nodes,
    re2_tree,
)

#: Of these texts, a match contains at least one.
Clause: TypeAlias = tuple[Needle, ...]

#: Texts that a part may match before only their common clause is kept, and the members of a character class.
_MAX_TEXTS, _MAX_MEMBERS = 16, 8
_MAX_TEXT_LENGTH = 256
#: Letters with a third case outside ASCII (the Kelvin sign, the long s).
_ODD_LETTERS = frozenset("kKsS")


@dataclass(frozen=True, slots=True)
class Required:
    """What every match contains: a text of every clause. `is_all` if a value with those texts always matches."""

    clauses: tuple[Clause, ...] = ()
    is_all: bool = False


@functools.lru_cache(maxsize=1024)
def required_texts(pattern: str) -> Required:
    """What values that contain a match of this RE2 pattern contain.

    >>> [[needle.text for needle in clause] for clause in required_texts("timeout after [0-9]+(ms|s)").clauses]
    [['timeout after '], ['ms', 's']]
    >>> required_texts("(?i)panic|fatal").clauses
    ((Needle(text='panic', ignore_case=True), Needle(text='fatal', ignore_case=True)),)
    """
    try:
        tree = re2_tree(pattern)
    except NotRead:
        return Required()
    part = _part_of(tree)
    clauses = part.required()
    # `^` and the like ask for more than texts.
    is_all = part.texts is not None and bool(clauses) and not any(isinstance(node, Place) for node in nodes(tree))
    return Required(clauses, is_all)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the expression: all texts that it matches, or None and clauses."""

    texts: tuple[Needle, ...] | None = None
    clauses: tuple[Clause, ...] = ()

    def required(self) -> tuple[Clause, ...]:
        if self.texts is None:
            return self.clauses
        found = _clause(self.texts)
        return () if found is None else (found,)


_ANYTHING, _EMPTY = _Part(), _Part((Needle(""),))


def _clause(texts: Iterable[Needle]) -> Clause | None:
    """The texts as a clause; None if one of them is empty, because every value contains that."""
    found = tuple(dict.fromkeys(texts))
    return found if found and all(needle.text for needle in found) else None


def _joined(left: Needle, right: Needle) -> Needle | None:
    """One text after the other; None if the case matters for letters of only one of them."""
    if left.ignore_case != right.ignore_case and _has_case(left.text) and _has_case(right.text):
        return None
    return Needle(left.text + right.text, left.ignore_case or right.ignore_case)


def _has_case(text: str) -> bool:
    return any(letter.isascii() and letter.isalpha() for letter in text)


def _sequence(parts: list[_Part]) -> _Part:
    """Parts one after another. The texts of neighbours are joined as long as there are few."""
    clauses: list[Clause] = []
    texts: tuple[Needle, ...] = (Needle(""),)
    whole = True
    for part in parts:
        crossed = None if part.texts is None else _crossed(texts, part.texts)
        if crossed is not None:
            texts = crossed
            continue
        whole = False
        clauses += _Part(texts).required()
        texts = part.texts or (Needle(""),)
        clauses += part.clauses
    if whole:
        return _Part(texts)
    return _Part(None, (*clauses, *_Part(texts).required()))


def _crossed(lefts: tuple[Needle, ...], rights: tuple[Needle, ...]) -> tuple[Needle, ...] | None:
    if len(lefts) * len(rights) > _MAX_TEXTS:
        return None
    found = [_joined(left, right) for left, right in itertools.product(lefts, rights)]
    texts = tuple(text for text in found if text is not None and len(text.text) <= _MAX_TEXT_LENGTH)
    return texts if len(texts) == len(found) else None


def _either(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    texts = tuple(dict.fromkeys(text for part in parts for text in part.texts or ()))
    if all(part.texts is not None for part in parts) and len(texts) <= _MAX_TEXTS:
        return _Part(texts)
    # One clause of each alternative: the one whose shortest text is the longest.
    chosen: list[Needle] = []
    for part in parts:
        best = max(part.required(), key=_sharpness, default=None)
        if best is None:
            return _ANYTHING
        chosen += best
    return _Part(None, (tuple(dict.fromkeys(chosen)),)) if len(chosen) <= _MAX_TEXTS else _ANYTHING


def _sharpness(clause: Clause) -> int:
    return min(len(needle.text) for needle in clause)


def _part_of(node: Node) -> _Part:
    match node:
        case Letter(text, ignore_case):
            return _letter(text, ignore_case)
        case Place():
            return _EMPTY
        case Sequence(parts):
            return _sequence([_part_of(part) for part in parts])
        case Either(parts):
            return _either([_part_of(part) for part in parts])
        case Repeated(part, least, most):
            return _repeated(_part_of(part), least, most)
        case OneOf():
            return _class(node)
        case Dot() | NamedClass():
            return _ANYTHING


def _repeated(part: _Part, least: int, most: int | None) -> _Part:
    if least == 0:
        return _either([_EMPTY, part]) if most == 1 else _ANYTHING
    return part if most == 1 else _Part(None, part.required())


def _class(node: OneOf) -> _Part:
    """A character class. Its members count if they are few, else it may be anything."""
    spans = [member for member in node.members if isinstance(member, Span)]
    size = sum(span.high - span.low + 1 for span in spans)
    if node.negated or len(spans) < len(node.members) or size > _MAX_MEMBERS:
        return _ANYTHING
    # Every line has white space: looking for it would take longer than it saves.
    if node.members == SPACE:
        return _ANYTHING
    members = dict.fromkeys(chr(code) for span in spans for code in range(span.low, span.high + 1))
    return _either([_letter(member, node.ignore_case) for member in members])


def _letter(letter: str, ignore_case: bool) -> _Part:
    if not ignore_case:
        return _Part((Needle(letter),))
    if not letter.isascii() or letter in _ODD_LETTERS:
        return _ANYTHING
    return _Part((Needle(letter.lower(), letter.isalpha()),))
