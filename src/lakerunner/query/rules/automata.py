"""Languages of matchers as automata: is every text that some matchers accept accepted by another one?

The patterns are RE2's, but only the part of its syntax that is read here for certain: characters, classes, groups,
alternatives and repetitions. Everything else is `Undecided`, which is never an answer to rely on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from lakerunner.query.series.matchers import Matcher, MatchKind

#: The highest code point.
_LAST = 0x10FFFF
#: States of one pattern, and steps of one comparison. A comparison that needs more is undecided; it takes about 10 ms.
_MAX_STATES = 1_000
MAX_STEPS = 20_000
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

#: Characters as ranges of code points, both ends included.
Ranges = tuple[tuple[int, int], ...]
_CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 10), (12, 13), (32, 32)),
}


class Undecided(Exception):
    """The question is too hard, or asked in syntax that is not read here."""


def inverted(ranges: Ranges) -> Ranges:
    """
    >>> inverted(((48, 57), (50, 60)))
    ((0, 47), (61, 1114111))
    """
    out, low = [], 0
    for start, end in sorted(ranges):
        if start > low:
            out.append((low, start - 1))
        low = max(low, end + 1)
    if low <= _LAST:
        out.append((low, _LAST))
    return tuple(out)


@dataclass(slots=True)
class Automaton:
    """A nondeterministic automaton. State 0 is its start and state 1 its end."""

    #: By state: the states that follow without a character, and those that follow a character of a range.
    free: list[list[int]] = field(default_factory=lambda: [[], []])
    moves: list[list[tuple[Ranges, int]]] = field(default_factory=lambda: [[], []])

    def state(self) -> int:
        if len(self.free) >= _MAX_STATES:
            raise Undecided("a pattern has too many states")
        self.free.append([])
        self.moves.append([])
        return len(self.free) - 1

    def closure(self, states: frozenset[int]) -> frozenset[int]:
        found, left = set(states), list(states)
        while left:
            for each in self.free[left.pop()]:
                if each not in found:
                    found.add(each)
                    left.append(each)
        return frozenset(found)

    def step(self, states: frozenset[int], char: int) -> frozenset[int]:
        reached = {
            target
            for state in states
            for ranges, target in self.moves[state]
            if any(low <= char <= high for low, high in ranges)
        }
        return self.closure(frozenset(reached))


@dataclass(frozen=True, slots=True)
class _Chars:
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    least: int
    #: None: without an end.
    most: int | None


_Node = _Chars | _Sequence | _Choice | _Repeat


class _Reader:
    """Reads a pattern by recursive descent."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> _Node:
        found = self._choice()
        if self._at != len(self._text):
            raise Undecided("an unmatched parenthesis")
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _choice(self) -> _Node:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (char := self._peek()) and char not in "|)":
            # The whole text must match, so that these say nothing at the edges of a top-level alternative.
            last = self._text[self._at + 1 : self._at + 2] in ("", "|")
            if not self._depth and ((char == "^" and not parts) or (char == "$" and last)):
                self._at += 1
            else:
                parts.append(self._repeated(self._atom()))
        return _Sequence(tuple(parts))

    def _repeated(self, part: _Node) -> _Node:
        counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._peek()
        if char in counts and char:
            self._at += 1
            least, most = counts[char]
        elif found := _REPEAT.match(self._text, self._at):
            self._at = found.end()
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else None
        else:
            return part
        # Reluctant repetitions match the same texts. A further operator is refused by RE2, or means something else.
        if self._peek() == "?":
            self._at += 1
        if self._peek() in ("*", "+", "?") or _REPEAT.match(self._text, self._at):
            raise Undecided("a repeated repetition")
        return _Repeat(part, least, most)

    def _atom(self) -> _Node:
        char = self._peek()
        self._at += 1
        match char:
            case "(":
                return self._group()
            case "[":
                return _Chars(self._class())
            case ".":
                return _Chars(((0, _LAST),))
            case "\\":
                return _Chars(self._escape())
            case "^" | "$" | "*" | "+" | "?":
                raise Undecided(f"{char} where it is not read")
        return _Chars(((ord(char), ord(char)),))

    def _group(self) -> _Node:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise Undecided("a group with flags or a name")
        self._depth += 1
        found = self._choice()
        self._depth -= 1
        if self._peek() != ")":
            raise Undecided("an unmatched parenthesis")
        self._at += 1
        return found

    def _escape(self) -> Ranges:
        char = self._peek()
        self._at += 1
        if char in _PUNCTUATION:
            return ((ord(char), ord(char)),)
        if char in _CONTROLS:
            return ((ord(_CONTROLS[char]), ord(_CONTROLS[char])),)
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char in _CLASSES else inverted(ranges)
        raise Undecided(f"the escape \\{char}")

    def _class(self) -> Ranges:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._class_member()
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._class_member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise Undecided("a range of classes")
                ranges.append((low[0][0], high[0][0]))
            else:
                ranges += low
        self._at += 1
        return inverted(tuple(ranges)) if negated else tuple(ranges)

    def _class_member(self) -> Ranges:
        char = self._peek()
        if not char or char == "[":
            raise Undecided("a class that is not read")
        self._at += 1
        return self._escape() if char == "\\" else ((ord(char), ord(char)),)


def _build(automaton: Automaton, node: _Node, start: int) -> int:
    """Add the node after the state `start`; return the state after it."""
    match node:
        case _Chars(ranges):
            end = automaton.state()
            automaton.moves[start].append((ranges, end))
            return end
        case _Sequence(parts):
            for part in parts:
                start = _build(automaton, part, start)
            return start
        case _Choice(options):
            end = automaton.state()
            for option in options:
                begin = automaton.state()
                automaton.free[start].append(begin)
                automaton.free[_build(automaton, option, begin)].append(end)
            return end
        case _Repeat(part, least, most):
            for _ in range(least):
                start = _build(automaton, part, start)
            end = automaton.state()
            if most is None:
                loop = automaton.state()
                automaton.free[start].append(loop)
                automaton.free[_build(automaton, part, loop)].append(loop)
                automaton.free[loop].append(end)
                return end
            automaton.free[start].append(end)
            for _ in range(most - least):
                start = _build(automaton, part, start)
                automaton.free[start].append(end)
            return end


@functools.lru_cache(maxsize=256)
def automaton_of(pattern: str) -> Automaton:
    """The automaton of a pattern that must match the whole text; a dot matches newlines too."""
    automaton = Automaton()
    automaton.free[_build(automaton, _Reader(pattern).read(), 0)].append(1)
    return automaton


@functools.lru_cache(maxsize=256)
def _automaton_of_text(text: str) -> Automaton:
    automaton = Automaton()
    parts = tuple(_Chars(((ord(char), ord(char)),)) for char in text)
    automaton.free[_build(automaton, _Sequence(parts), 0)].append(1)
    return automaton


@dataclass(frozen=True, slots=True)
class _Language:
    """The texts that a matcher accepts."""

    automaton: Automaton
    negated: bool

    @classmethod
    def of(cls, matcher: Matcher) -> _Language:
        plain = matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL)
        negated = matcher.kind in (MatchKind.NOT_EQUAL, MatchKind.NOT_REGEX)
        return cls(_automaton_of_text(matcher.value) if plain else automaton_of(matcher.value), negated)

    def start(self) -> frozenset[int]:
        return self.automaton.closure(frozenset({0}))

    def accepts(self, states: frozenset[int]) -> bool:
        return (1 in states) != self.negated


def _witnesses(languages: Sequence[_Language]) -> list[int]:
    """One character of each set of characters that no language tells apart."""
    edges = {0}
    for language in languages:
        for moves in language.automaton.moves:
            for ranges, _ in moves:
                for low, high in ranges:
                    edges |= {low, high + 1}
    return sorted(edge for edge in edges if edge <= _LAST)


def counterexample(given: Sequence[Matcher], wanted: Matcher, steps: int = MAX_STEPS) -> str | None:
    """A text that all of `given` accept and `wanted` does not; None if there is none. Raises `Undecided`.

    >>> any_error = Matcher("level", MatchKind.REGEX, "err.*|warn")
    >>> counterexample([Matcher("level", MatchKind.REGEX, "error|warn")], any_error) is None
    True
    >>> counterexample([Matcher("level", MatchKind.REGEX, "error|info")], any_error)
    'info'
    """
    languages = [*map(_Language.of, given), _Language.of(wanted)]
    chars = _witnesses(languages)
    first = tuple(language.start() for language in languages)
    seen, left = {first}, [(first, "")]
    for states, text in left:
        accepted = [language.accepts(each) for language, each in zip(languages, states, strict=True)]
        if all(accepted[:-1]) and not accepted[-1]:
            return text
        for char in chars:
            steps -= 1
            if steps < 0:
                raise Undecided("the patterns take too many steps to compare")
            after = tuple(language.automaton.step(each, char) for language, each in zip(languages, states, strict=True))
            # Nothing can follow once a language that is not negated has no state left.
            if any(not each and not language.negated for language, each in zip(languages[:-1], after, strict=False)):
                continue
            if after not in seen:
                seen.add(after)
                left.append((after, text + chr(char)))
    return None
