r"""Reads a regular expression in RE2's syntax into a tree, for questions about the texts that it matches.

The tree leaves out what has no influence on whether a text matches: groups are their contents, and repetitions do not
say whether they prefer few. Flags are resolved where they apply: at letters, classes, dots and places.

The pattern must be one that RE2 compiles. For syntax that is rarely used the reader raises `NotRead`, and whoever asked
does without the tree.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

#: The highest code point.
LAST_CODE = 0x10FFFF
#: Reading 10,000 characters takes 10 ms. Deep patterns would need deep recursion, here and in whoever walks the tree.
_MAX_LENGTH, _MAX_DEPTH = 10_000, 50
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_HEX = re.compile(r"\\x(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2}))")
_OCTAL = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED_GROUP = re.compile(r"\(\?P?<\w+>")
_QUOTE = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_UNICODE_CLASS = re.compile(r"\\[pP](?:\{\^?\w+\}|\w)")
_POSIX_CLASS = re.compile(r"\[:\^?\w+:\]")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class NotRead(Exception):
    """The pattern has syntax that is not read here; the message names it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A character that stands for itself."""

    text: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """Any character; a newline only if `newline`."""

    newline: bool


@dataclass(frozen=True, slots=True)
class Span:
    """The code points from `low` to `high`, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class NamedClass:
    r"""A class whose characters are not listed here: `\pL`, `[:alpha:]`."""

    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of a class. If case is ignored, the members come in both cases before the class is negated."""

    members: tuple[Span | NamedClass | OneOf, ...]
    negated: bool = False
    ignore_case: bool = False


class PlaceKind(StrEnum):
    TEXT_BEGIN = "^"
    TEXT_END = "$"
    LINE_BEGIN = "(?m)^"
    LINE_END = "(?m)$"
    WORD_BORDER = r"\b"
    NO_WORD_BORDER = r"\B"


@dataclass(frozen=True, slots=True)
class Place:
    """A condition on the place in the text. It takes no character."""

    kind: PlaceKind


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


Node: TypeAlias = Letter | Dot | NamedClass | OneOf | Place | Sequence | Either | Repeated

_NOTHING = Sequence(())
_DIGIT = (Span(ord("0"), ord("9")),)
WORD = (*_DIGIT, Span(ord("A"), ord("Z")), Span(ord("_"), ord("_")), Span(ord("a"), ord("z")))
SPACE = (Span(ord("\t"), ord("\n")), Span(ord("\f"), ord("\r")), Span(ord(" "), ord(" ")))
_CLASSES = {"d": _DIGIT, "w": WORD, "s": SPACE}


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    dot_newline: bool = False
    lines: bool = False

    def changed(self, on: str, off: str) -> _Flags:
        def value(flag: str, before: bool) -> bool:
            return (before or flag in on) and flag not in off

        return _Flags(value("i", self.ignore_case), value("s", self.dot_newline), value("m", self.lines))


@functools.lru_cache(maxsize=512)
def re2_tree(pattern: str, *, dot_newline: bool = False) -> Node:
    """The tree of a pattern. Raises `NotRead`.

    >>> re2_tree("a|(?i:b)+?")
    Either(parts=(Sequence(parts=(Letter(text='a', ignore_case=False),)), \
Sequence(parts=(Repeated(part=Sequence(parts=(Letter(text='b', ignore_case=True),)), least=1, most=None),))))
    """
    if len(pattern) > _MAX_LENGTH:
        raise NotRead("a pattern of this length")
    reader = _Reader(pattern)
    found = reader.alternatives(_Flags(dot_newline=dot_newline), 0)
    if not reader.is_at_end:
        raise NotRead("an unmatched parenthesis")
    return found


def nodes(node: Node) -> Iterator[Node]:
    """The node and all below it, except the members of classes."""
    yield node
    match node:
        case Sequence(parts) | Either(parts):
            for part in parts:
                yield from nodes(part)
        case Repeated(part):
            yield from nodes(part)


class _Reader:
    """Reads a pattern by recursive descent."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._pattern)

    def alternatives(self, flags: _Flags, depth: int) -> Node:
        """Read up to the end of the group or the pattern."""
        if depth > _MAX_DEPTH:
            raise NotRead("groups of this depth")
        found: list[Node] = []
        parts: list[Node] = []
        while not self.is_at_end and self._peek() != ")":
            if self._taken("|"):
                found.append(Sequence(tuple(parts)))
                parts = []
            elif (change := self._matched(_FLAGS)) is not None:
                changed = flags.changed(change[1], change[2] or "")
                if change[3] == ")":
                    flags = changed
                else:
                    parts.append(self._repeated(self._closed(changed, depth)))
            elif (quote := self._matched(_QUOTE)) is not None:
                parts += [Letter(letter, flags.ignore_case) for letter in quote[1]]
                # A repetition after the quote is one of its last letter.
                if quote[1]:
                    parts[-1] = self._repeated(parts[-1])
            else:
                parts.append(self._repeated(self._single(flags, depth)))
        found.append(Sequence(tuple(parts)))
        return found[0] if len(found) == 1 else Either(tuple(found))

    def _closed(self, flags: _Flags, depth: int) -> Node:
        found = self.alternatives(flags, depth + 1)
        if not self._taken(")"):
            raise NotRead("an unmatched parenthesis")
        return found

    def _single(self, flags: _Flags, depth: int) -> Node:
        if self._matched(_NAMED_GROUP) is not None:
            return self._closed(flags, depth)
        letter = self._peek()
        if letter == "\\":
            return self._escape(flags)
        # After flags or an empty quote, a repetition is one of what stands before these.
        if self._repetition(_NOTHING) is not None:
            raise NotRead("a repetition of nothing")
        self._at += 1
        match letter:
            case "(":
                if self._peek() == "?":
                    raise NotRead("this kind of group")
                return self._closed(flags, depth)
            case "[":
                return self._class(flags)
            case ".":
                return Dot(flags.dot_newline)
            case "^":
                return Place(PlaceKind.LINE_BEGIN if flags.lines else PlaceKind.TEXT_BEGIN)
            case "$":
                return Place(PlaceKind.LINE_END if flags.lines else PlaceKind.TEXT_END)
        return Letter(letter, flags.ignore_case)

    def _repeated(self, part: Node) -> Node:
        found = self._repetition(part)
        if found is None:
            return part
        self._taken("?")
        if self._repetition(part) is not None:
            raise NotRead("a repetition of a repetition")
        return found

    def _repetition(self, part: Node) -> Node | None:
        for sign, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._taken(sign):
                return Repeated(part, least, most)
        counted = self._matched(_REPEAT)
        if counted is None:
            return None
        least = int(counted[1])
        return Repeated(part, least, least if counted[2] is None else int(counted[3]) if counted[3] else None)

    def _escape(self, flags: _Flags) -> Node:
        found = self._escaped_class(flags)
        if found is not None:
            return found
        for sign, kind in (
            (r"\A", PlaceKind.TEXT_BEGIN),
            (r"\z", PlaceKind.TEXT_END),
            (r"\b", PlaceKind.WORD_BORDER),
            (r"\B", PlaceKind.NO_WORD_BORDER),
        ):
            if self._taken(sign):
                return Place(kind)
        return Letter(self._escaped_letter(), flags.ignore_case)

    def _escaped_class(self, flags: _Flags) -> NamedClass | OneOf | None:
        named = self._matched(_UNICODE_CLASS)
        if named is not None:
            return NamedClass(named[0])
        name = self._pattern[self._at + 1 : self._at + 2]
        if self._peek() != "\\" or name.lower() not in _CLASSES:
            return None
        self._at += 2
        return OneOf(_CLASSES[name.lower()], name.isupper(), flags.ignore_case)

    def _escaped_letter(self) -> str:
        if (found := self._matched(_HEX)) is not None:
            return _character(int(found[1] or found[2], 16))
        if (found := self._matched(_OCTAL)) is not None:
            return _character(int(found[1], 8))
        name = self._pattern[self._at + 1 : self._at + 2]
        self._at += 2
        if name in _CONTROL:
            return _CONTROL[name]
        if not name or name.isalnum() or not name.isascii():
            raise NotRead(f"the escape \\{name}")
        return name

    def _class(self, flags: _Flags) -> Node:
        negated = self._taken("^")
        members = [self._member(flags)]
        while not self._taken("]"):
            members.append(self._member(flags))
        return OneOf(tuple(members), negated, flags.ignore_case)

    def _member(self, flags: _Flags) -> Span | NamedClass | OneOf:
        named = self._matched(_POSIX_CLASS)
        found = NamedClass(named[0]) if named is not None else self._escaped_class(flags)
        if found is not None:
            return found
        low = high = self._class_letter()
        if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._class_letter()
        return Span(ord(low), ord(high))

    def _class_letter(self) -> str:
        if self.is_at_end:
            raise NotRead("a class without an end")
        letter = self._peek()
        if letter == "\\":
            return self._escaped_letter()
        self._at += 1
        return letter

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _taken(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _matched(self, syntax: re.Pattern[str]) -> re.Match[str] | None:
        found = syntax.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
        return found


def _character(code: int) -> str:
    if code > LAST_CODE or 0xD800 <= code < 0xE000:
        raise NotRead("a number that is no character")
    return chr(code)
