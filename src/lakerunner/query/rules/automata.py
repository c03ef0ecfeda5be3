"""Languages of matchers as automata: is every text that some matchers accept accepted by another one?

The patterns are RE2's, but only characters, classes, groups, alternatives and repetitions become automata. Everything
else is `Undecided`, which is never an answer to rely on.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, field

from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.syntax.re2_syntax import (
    LAST_CODE,
    Dot,
    Either,
    Letter,
    NamedClass,
    Node,
    NotRead,
    OneOf,
    Place,
    PlaceKind,
    Repeated,
    Sequence,
    Span,
    re2_tree,
)

#: States of one pattern, and steps of one comparison. A comparison that needs more is undecided; it takes about 10 ms.
_MAX_STATES = 1_000
MAX_STEPS = 20_000

#: Characters as ranges of code points, both ends included.
Ranges = tuple[tuple[int, int], ...]


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
    if low <= LAST_CODE:
        out.append((low, LAST_CODE))
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


def _ranges(node: Letter | Dot | NamedClass | OneOf) -> Ranges:
    """The characters that the node takes."""
    match node:
        case Letter(text, False):
            return ((ord(text), ord(text)),)
        case Dot(newline):
            return inverted(() if newline else ((ord("\n"), ord("\n")),))
        case OneOf(members, negated, False):
            found: list[tuple[int, int]] = []
            for member in members:
                found += [(member.low, member.high)] if isinstance(member, Span) else _ranges(member)
            return inverted(tuple(found)) if negated else tuple(found)
        case NamedClass(text):
            raise Undecided(f"the class {text}")
    raise Undecided("letters in any case")


def _build(automaton: Automaton, node: Node, start: int) -> int:
    """Add the node after the state `start`; return the state after it."""
    match node:
        case Letter() | Dot() | NamedClass() | OneOf():
            return _take(automaton, _ranges(node), start)
        case Sequence(parts):
            for part in parts:
                start = _build(automaton, part, start)
            return start
        case Either(parts):
            end = automaton.state()
            for part in parts:
                begin = automaton.state()
                automaton.free[start].append(begin)
                automaton.free[_build(automaton, part, begin)].append(end)
            return end
        case Repeated(part, least, most):
            return _repeat(automaton, part, least, most, start)
        case Place(kind):
            raise Undecided(f"{kind.value} where it is not read")


def _take(automaton: Automaton, ranges: Ranges, start: int) -> int:
    end = automaton.state()
    automaton.moves[start].append((ranges, end))
    return end


def _repeat(automaton: Automaton, part: Node, least: int, most: int | None, start: int) -> int:
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


def _without_edges(node: Node) -> Node:
    """Without `^` and `$` at the edges of the alternatives: these say nothing, because the whole text must match."""
    match node:
        case Either(parts):
            return Either(tuple(map(_without_edges, parts)))
        case Sequence(parts):
            begin, end = 0, len(parts)
            while begin < end and parts[begin] == Place(PlaceKind.TEXT_BEGIN):
                begin += 1
            while begin < end and parts[end - 1] == Place(PlaceKind.TEXT_END):
                end -= 1
            return Sequence(parts[begin:end])
    return node


@functools.lru_cache(maxsize=256)
def automaton_of(pattern: str) -> Automaton:
    """The automaton of a pattern that must match the whole text; a dot matches newlines too."""
    automaton = Automaton()
    try:
        tree = re2_tree(pattern, dot_newline=True)
    except NotRead as reason:
        raise Undecided(str(reason)) from None
    automaton.free[_build(automaton, _without_edges(tree), 0)].append(1)
    return automaton


@functools.lru_cache(maxsize=256)
def _automaton_of_text(text: str) -> Automaton:
    automaton = Automaton()
    automaton.free[_build(automaton, Sequence(tuple(map(Letter, text))), 0)].append(1)
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


def _witnesses(languages: Collection[_Language]) -> list[int]:
    """One character of each set of characters that no language tells apart."""
    edges = {0}
    for language in languages:
        for moves in language.automaton.moves:
            for ranges, _ in moves:
                for low, high in ranges:
                    edges |= {low, high + 1}
    return sorted(edge for edge in edges if edge <= LAST_CODE)


def counterexample(given: Collection[Matcher], wanted: Matcher, steps: int = MAX_STEPS) -> str | None:
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
