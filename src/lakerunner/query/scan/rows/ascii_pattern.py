r"""Reads regular expressions as RE2 does, for texts of ASCII characters alone.

A set of characters is a number with 128 bits, one per ASCII character. Characters outside ASCII are in no set: texts
that have some are left to RE2. `parsed` raises `NotUnderstood` for the parts of the syntax that few people use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_HEX = re.compile(r"\\x(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2}))")
_FLAGS = re.compile(r"\?([is]*)(?:-([is]+))?([:)])")
_NAMED = re.compile(r"\?P?<\w+>")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_MAX_PATTERN_LENGTH, _MAX_DEPTH = 2_000, 50
_ASCII = 128


class NotUnderstood(Exception):
    pass


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of a set."""

    members: int


@dataclass(frozen=True, slots=True)
class Place:
    r"""A condition on the place: `^`, `$`, `b` (the border of a word) or `B` (no border)."""

    kind: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """`most` is None if there is no limit."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = OneOf | Place | Sequence | Either | Repeated


def _set(characters: str) -> int:
    return sum(1 << ord(character) for character in set(characters))


def _span(low: int, high: int) -> int:
    """The ASCII characters from `low` to `high`, both included."""
    high = min(high, _ASCII - 1)
    return (1 << (high + 1)) - (1 << low) if low <= high else 0


EVERY = _span(0, _ASCII - 1)
DIGIT = _span(ord("0"), ord("9"))
_UPPER, _LOWER = _span(ord("A"), ord("Z")), _span(ord("a"), ord("z"))
WORD = DIGIT | _UPPER | _LOWER | _set("_")
_CLASSES = {"d": DIGIT, "w": WORD, "s": _set("\t\n\f\r ")}
_CLASSES |= {name.upper(): EVERY & ~members for name, members in _CLASSES.items()}
_CASE = ord("a") - ord("A")


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    dot_newline: bool = False


def parsed(pattern: str) -> Node:
    """The pattern, which RE2 is known to accept."""
    if len(pattern) > _MAX_PATTERN_LENGTH:
        raise NotUnderstood
    parser = _Parser(pattern)
    found = parser.alternatives(_Flags(), 0)
    if not parser.is_at_end:
        raise NotUnderstood
    return found


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._pattern)

    def alternatives(self, flags: _Flags, depth: int) -> Node:
        """Read up to the end of the group or the pattern."""
        if depth > _MAX_DEPTH:
            raise NotUnderstood
        found: list[Node] = []
        parts: list[Node] = []
        while not self.is_at_end and self._pattern[self._at] != ")":
            if self._taken("|"):
                found.append(Sequence(tuple(parts)))
                parts = []
            elif (changed := self._flag_change(flags)) is not None:
                flags = changed
            else:
                parts.append(self._repeated(self._single(flags, depth)))
        found.append(Sequence(tuple(parts)))
        return found[0] if len(found) == 1 else Either(tuple(found))

    def _single(self, flags: _Flags, depth: int) -> Node:
        letter = self._pattern[self._at]
        if letter == "(":
            return self._group(flags, depth)
        if letter == "[":
            return OneOf(self._class(flags))
        if letter == "\\":
            return self._escape(flags)
        self._at += 1
        if letter == ".":
            return OneOf(EVERY if flags.dot_newline else EVERY & ~_set("\n"))
        if letter in "^$":
            return Place(letter)
        if letter in "*+?":
            raise NotUnderstood
        return OneOf(_members([(ord(letter), ord(letter))], flags))

    def _repeated(self, part: Node) -> Node:
        found = self._repetition(part)
        if found is None:
            return part
        # Whether as few as possible are preferred makes no difference to whether the text matches.
        self._taken("?")
        if self._repetition(part) is not None:
            # Very many repetitions of repetitions would be nested as deeply.
            raise NotUnderstood
        return found

    def _repetition(self, part: Node) -> Node | None:
        letter = self._pattern[self._at : self._at + 1]
        counted = _REPEAT.match(self._pattern, self._at)
        if letter and letter in "*+?":
            self._at += 1
            return Repeated(part, int(letter == "+"), 1 if letter == "?" else None)
        if counted is None:
            return None
        self._at = counted.end()
        least = int(counted[1])
        return Repeated(part, least, least if counted[2] is None else int(counted[2]) if counted[2] else None)

    def _group(self, flags: _Flags, depth: int) -> Node:
        self._at += 1
        named = _NAMED.match(self._pattern, self._at)
        scoped = _FLAGS.match(self._pattern, self._at)
        if named is not None:
            self._at = named.end()
        elif scoped is not None and scoped[3] == ":":
            flags = _changed(flags, scoped)
            self._at = scoped.end()
        elif self._pattern.startswith("?", self._at):
            raise NotUnderstood
        part = self.alternatives(flags, depth + 1)
        if not self._taken(")"):
            raise NotUnderstood
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

    def _escape(self, flags: _Flags) -> Node:
        name = self._pattern[self._at + 1 : self._at + 2]
        if name and name in "AzbB":
            self._at += 2
            return Place({"A": "^", "z": "$"}.get(name, name))
        if name in _CLASSES:
            self._at += 2
            return OneOf(_CLASSES[name])
        code = ord(self._escaped_letter())
        return OneOf(_members([(code, code)], flags))

    def _escaped_letter(self) -> str:
        number = _HEX.match(self._pattern, self._at)
        name = self._pattern[self._at + 1 : self._at + 2]
        if number is not None:
            self._at = number.end()
            code = int(number[1] or number[2], 16)
            if code > 0x10FFFF:
                raise NotUnderstood
            return chr(code)
        self._at += 2
        if name in _CONTROL:
            return _CONTROL[name]
        if not name or name.isalnum() or not name.isascii():
            raise NotUnderstood
        return name

    def _class(self, flags: _Flags) -> int:
        self._at += 1
        negated = self._taken("^")
        members = 0
        is_first = True
        while is_first or not self._pattern.startswith("]", self._at):
            is_first = False
            members |= self._member(flags)
            if self.is_at_end:
                raise NotUnderstood
        self._at += 1
        return EVERY & ~members if negated else members

    def _member(self, flags: _Flags) -> int:
        pattern, at = self._pattern, self._at
        if pattern.startswith("[:", at):
            raise NotUnderstood
        if pattern[at : at + 1] == "\\" and pattern[at + 1 : at + 2] in _CLASSES:
            self._at += 2
            return _CLASSES[pattern[at + 1]]
        low = high = ord(self._class_letter())
        if pattern.startswith("-", self._at) and pattern[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = ord(self._class_letter())
        return _members([(low, high)], flags)

    def _class_letter(self) -> str:
        letter = self._pattern[self._at : self._at + 1]
        if not letter:
            raise NotUnderstood
        if letter == "\\":
            return self._escaped_letter()
        self._at += 1
        return letter

    def _taken(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True


def _members(spans: list[tuple[int, int]], flags: _Flags) -> int:
    """The ASCII characters of some spans of characters."""
    # The Kelvin sign is a k, and the long s an s, if case is ignored.
    if flags.ignore_case and any(high >= _ASCII for _, high in spans):
        raise NotUnderstood
    found = 0
    for low, high in spans:
        found |= _span(low, high)
    if flags.ignore_case:
        found |= (found & _UPPER) << _CASE | (found & _LOWER) >> _CASE
    return found


def _changed(flags: _Flags, scoped: re.Match[str]) -> _Flags:
    on, off = scoped[1], scoped[2] or ""
    return _Flags(
        ("i" in on or flags.ignore_case) and "i" not in off, ("s" in on or flags.dot_newline) and "s" not in off
    )


def characters(members: int) -> Iterator[int]:
    while members:
        yield (members & -members).bit_length() - 1
        members &= members - 1
