"""The texts that every match of a regular expression contains. Rows without them need no matching.

For every part of the expression the analysis keeps either all texts that it matches, while these are few, or clauses:
of the texts of a clause, every match contains at least one. Whatever it does not understand may match anything, so an
answer may say too little, but is never wrong.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakerunner.query.scan.rows.substring import Needle

#: Of these texts, a match contains at least one.
Clause: TypeAlias = tuple[Needle, ...]

#: Texts that a part may match before only their common clause is kept, and the members of a character class.
_MAX_TEXTS, _MAX_MEMBERS = 16, 8
_MAX_TEXT_LENGTH = 256
_MAX_PATTERN_LENGTH, _MAX_DEPTH = 10_000, 50
#: Letters with a third case outside ASCII (the Kelvin sign, the long s).
_ODD_LETTERS = frozenset("kKsS")
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_HEX = re.compile(r"\\x(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2}))")
_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{2})")
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]*))?([:)])")
_NAMED = re.compile(r"\?P?<\w+>")
_UNICODE_CLASS = re.compile(r"\\[pP](?:\{\^?\w+\}|\w)")
_POSIX_CLASS = re.compile(r"\[:\^?\w+:\]")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


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
    if len(pattern) > _MAX_PATTERN_LENGTH:
        return Required()
    parser = _Parser(pattern)
    try:
        part = parser.alternatives(_Flags(), 0)
    except _NotUnderstood:
        return Required()
    if part.texts is not None:
        found = _clause(part.texts)
        return Required(() if found is None else (found,), is_all=found is not None and not parser.has_conditions)
    return Required(part.clauses)


class _NotUnderstood(Exception):
    pass


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


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False


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


def _sequence(parts: Sequence[_Part]) -> _Part:
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


def _either(parts: Sequence[_Part]) -> _Part:
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


class _Parser:
    """Reads the syntax that RE2 and Go share. The pattern is known to compile."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        #: Whether the expression asks for more than texts, as `^` and `\b` do.
        self.has_conditions = False

    def alternatives(self, flags: _Flags, depth: int) -> _Part:
        """Read up to the end of the group or the pattern."""
        if depth > _MAX_DEPTH:
            raise _NotUnderstood
        found: list[_Part] = []
        parts: list[_Part] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._taken("|"):
                found.append(_sequence(parts))
                parts = []
                continue
            changed = self._flag_change(flags)
            if changed is not None:
                flags = changed
                continue
            parts.append(self._repeated(self._single(flags, depth)))
        return _either([*found, _sequence(parts)])

    def _single(self, flags: _Flags, depth: int) -> _Part:
        letter = self._pattern[self._at]
        if letter == "(":
            return self._group(flags, depth)
        if letter == "[":
            return self._class(flags)
        if letter == "\\":
            return self._escape(flags)
        self._at += 1
        if letter == ".":
            return _ANYTHING
        if letter in "^$":
            self.has_conditions = True
            return _EMPTY
        if letter in "*+?":
            raise _NotUnderstood
        return _letter(letter, flags)

    def _repeated(self, part: _Part) -> _Part:
        while self._at < len(self._pattern):
            letter = self._pattern[self._at]
            counted = _REPEAT.match(self._pattern, self._at)
            if letter in "*+?":
                self._at += 1
                least = 1 if letter == "+" else 0
                once = letter == "?"
            elif counted is not None:
                self._at = counted.end()
                least = int(counted[1])
                once = counted[0] in ("{1}", "{0,1}", "{1,1}")
            else:
                return part
            self._taken("?")
            if least == 0:
                part = _either([_EMPTY, part]) if once else _ANYTHING
            elif not once:
                part = _Part(None, part.required())
        return part

    def _group(self, flags: _Flags, depth: int) -> _Part:
        self._at += 1
        named = _NAMED.match(self._pattern, self._at)
        scoped = _FLAGS.match(self._pattern, self._at)
        if named is not None:
            self._at = named.end()
        elif scoped is not None and scoped[3] == ":":
            flags = _changed(flags, scoped)
            self._at = scoped.end()
        elif self._pattern.startswith("?", self._at):
            raise _NotUnderstood
        part = self.alternatives(flags, depth + 1)
        if not self._taken(")"):
            raise _NotUnderstood
        return part

    def _flag_change(self, flags: _Flags) -> _Flags | None:
        """The flags from here to the end of the group, after `(?i)` and the like."""
        if not self._pattern.startswith("(?", self._at):
            return None
        scoped = _FLAGS.match(self._pattern, self._at + 1)
        if scoped is None or scoped[3] != ")":
            return None
        self._at = scoped.end()
        return _changed(flags, scoped)

    def _escape(self, flags: _Flags) -> _Part:
        pattern, at = self._pattern, self._at
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at + 2)
            quoted = pattern[at + 2 : end] if end >= 0 else pattern[at + 2 :]
            # A repetition after the quote applies to its last letter alone.
            self._at = end + 2 if end >= 0 else len(pattern)
            if self._at < len(pattern) and pattern[self._at] in "*+?{":
                raise _NotUnderstood
            return _sequence([_letter(letter, flags) for letter in quoted])
        classed = _UNICODE_CLASS.match(pattern, at)
        if classed is not None:
            self._at = classed.end()
            return _ANYTHING
        name = pattern[at + 1 : at + 2]
        if name and name in "AzbB":
            self._at += 2
            self.has_conditions = True
            return _EMPTY
        if name and name in "dDwWsSC":
            self._at += 2
            return _ANYTHING
        return _letter(self._escaped_letter(), flags)

    def _escaped_letter(self) -> str:
        pattern, at = self._pattern, self._at
        number = _HEX.match(pattern, at)
        octal = _OCTAL.match(pattern, at)
        name = pattern[at + 1 : at + 2]
        if number is not None:
            self._at = number.end()
            return _character(int(number[1] or number[2], 16))
        if octal is not None:
            self._at = octal.end()
            return _character(int(octal[1], 8))
        self._at += 2
        if name in _CONTROL:
            return _CONTROL[name]
        if not name or name.isalnum() or not name.isascii():
            raise _NotUnderstood
        return name

    def _class(self, flags: _Flags) -> _Part:
        """A character class. Its members count if they are few, else it may be anything."""
        self._at += 1
        negated = self._taken("^")
        members: list[str] | None = []
        is_first = True
        while is_first or not self._pattern.startswith("]", self._at):
            is_first = False
            found = self._member()
            members = None if members is None or found is None else members + found
            if self._at >= len(self._pattern):
                raise _NotUnderstood
        self._at += 1
        if negated or members is None or len(members) > _MAX_MEMBERS:
            return _ANYTHING
        parts = [_letter(member, flags) for member in dict.fromkeys(members)]
        return _either(parts)

    def _member(self) -> list[str] | None:
        """One letter or range of a class; None if it is a class itself, or has many letters."""
        pattern, at = self._pattern, self._at
        classed = _POSIX_CLASS.match(pattern, at) or _UNICODE_CLASS.match(pattern, at)
        if classed is not None:
            self._at = classed.end()
            return None
        if pattern[at : at + 1] == "\\" and pattern[at + 1 : at + 2] in tuple("dDwWsS"):
            self._at += 2
            return None
        low = self._class_letter()
        if not pattern.startswith("-", self._at) or pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return [low]
        self._at += 1
        high = self._class_letter()
        if ord(high) - ord(low) >= _MAX_MEMBERS:
            return None
        return [chr(number) for number in range(ord(low), ord(high) + 1)]

    def _class_letter(self) -> str:
        letter = self._pattern[self._at : self._at + 1]
        if not letter:
            raise _NotUnderstood
        if letter == "\\":
            return self._escaped_letter()
        self._at += 1
        return letter

    def _taken(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True


def _letter(letter: str, flags: _Flags) -> _Part:
    if not flags.ignore_case:
        return _Part((Needle(letter),))
    if not letter.isascii() or letter in _ODD_LETTERS:
        return _ANYTHING
    return _Part((Needle(letter.lower(), letter.isalpha()),))


def _changed(flags: _Flags, scoped: re.Match[str]) -> _Flags:
    if "i" in scoped[1]:
        return _Flags(ignore_case=True)
    return _Flags(ignore_case=False) if "i" in (scoped[2] or "") else flags


def _character(number: int) -> str:
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise _NotUnderstood
    return chr(number)
