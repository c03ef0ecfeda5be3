"""Matches a regular expression with many short texts: one table of states, and four texts at a time.

RE2 looks at one byte after the other (1.5 ns each, and 35 ns to begin a text): every step waits for the one before it.
Here all states are computed before, and the steps of four texts are taken in turn. Texts with a byte outside ASCII, and
patterns with very many states, are left to RE2.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.scan.rows.conditions.ascii_sets import WORD, ascii_set
from lakerunner.query.syntax.re2_syntax import (
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
    re2_tree,
)

#: What is known of a text.
NO, YES, UNKNOWN = 0, 1, 2
_BYTES, _ASCII = 256, 128
#: States that end a match, as the table names them: the first of its places.
_MATCHED, _FOREIGN, _FIRST = 0, _BYTES, 2 * _BYTES
#: Places of one automaton, and steps to compute it, about 20 ms. Other patterns are RE2's.
_MAX_INSTRUCTIONS, _MAX_STATES, _MAX_STEPS = 500, 120, 40_000
#: The conditions on places that a state knows the answer to.
_PLACES = frozenset(PlaceKind) - {PlaceKind.LINE_BEGIN, PlaceKind.LINE_END}
#: Texts that are matched in turn, and bytes of each after which they are looked at.
_LANES, _STRIDE = 4, 16


@dataclass(frozen=True, slots=True)
class Automaton:
    """`table[state + byte]` is the next state. `ends[state // 256]`: whether a text that ends there matches."""

    table: npt.NDArray[np.uint16]
    ends: npt.NDArray[np.uint8]
    start: int

    def verdicts(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """For each text, `YES` if a part of it matches, `NO`, or `UNKNOWN`."""
        found = np.empty(len(offsets) - 1, np.uint8)
        run(data, offsets, self.table, self.ends, self.start, found)
        return found


@functools.lru_cache(maxsize=128)
def automaton_of(pattern: str) -> Automaton | None:
    """The automaton of a pattern that RE2 accepts; None if RE2 has to match it."""
    try:
        program = _Program()
        start = program.add(re2_tree(pattern), program.emit(_Match()))
        return _States(program, start).automaton()
    except (NotRead, _TooLarge):
        return None


class _TooLarge(Exception):
    """The automaton would take too long to compute."""


@dataclass(frozen=True, slots=True)
class _Match:
    pass


@dataclass(frozen=True, slots=True)
class _Take:
    """Take one character of the set."""

    members: int
    then: int


@dataclass(frozen=True, slots=True)
class _Check:
    kind: PlaceKind
    then: int


@dataclass(frozen=True, slots=True)
class _Go:
    to: tuple[int, ...]


@dataclass(slots=True)
class _Program:
    instructions: list[_Match | _Take | _Check | _Go] = field(default_factory=list)

    def emit(self, instruction: _Match | _Take | _Check | _Go) -> int:
        if len(self.instructions) >= _MAX_INSTRUCTIONS:
            raise _TooLarge
        self.instructions.append(instruction)
        return len(self.instructions) - 1

    def add(self, node: Node, then: int) -> int:
        """Add what matches the node and goes on with `then`. Returns where it begins."""
        match node:
            case Letter() | Dot() | OneOf() | NamedClass():
                return self.emit(_Take(ascii_set(node), then))
            case Place(kind):
                if kind not in _PLACES:
                    raise NotRead("places in lines")
                return self.emit(_Check(kind, then))
            case Sequence(parts):
                for part in reversed(parts):
                    then = self.add(part, then)
                return then
            case Either(parts):
                return self.emit(_Go(tuple(self.add(part, then) for part in parts)))
            case Repeated(part, least, most):
                return self._repeated(part, least, most, then)

    def _repeated(self, part: Node, least: int, most: int | None, then: int) -> int:
        if most is None:
            loop = self.emit(_Go(()))
            self.instructions[loop] = _Go((self.add(part, loop), then))
            after = loop
        else:
            after = then
            for _ in range(most - least):
                after = self.emit(_Go((self.add(part, after), then)))
        for _ in range(least):
            after = self.add(part, after)
        return after


@dataclass(frozen=True, slots=True)
class _State:
    """Where a match may be, and what matters of the character before: whether it is of a word, or there is none."""

    places: frozenset[int]
    after_word: bool
    at_begin: bool


class _States:
    """The states of a program that looks for a match anywhere in a text."""

    def __init__(self, program: _Program, start: int) -> None:
        self._instructions = program.instructions
        self._start = start
        self._steps = 0
        kinds = {each.kind for each in self._instructions if isinstance(each, _Check)}
        self._sees_words = bool(kinds & {PlaceKind.WORD_BORDER, PlaceKind.NO_WORD_BORDER})
        self._sees_begin = PlaceKind.TEXT_BEGIN in kinds
        sets = {each.members for each in self._instructions if isinstance(each, _Take)} | {WORD}
        #: Characters that no set tells apart.
        alike: dict[tuple[bool, ...], list[int]] = {}
        for code in range(_ASCII):
            alike.setdefault(tuple(bool(members >> code & 1) for members in sorted(sets)), []).append(code)
        self._alike = list(alike.values())

    def automaton(self) -> Automaton:
        first = self._state(frozenset(), after_word=False, at_begin=True)
        numbers: dict[_State, int] = {first: 2}
        waiting, rows = [first], []
        while waiting:
            state = waiting.pop()
            row = np.full(_BYTES, _FOREIGN, np.uint16)
            for codes in self._alike:
                following = self._following(state, codes[0])
                if following is not None and following not in numbers:
                    if len(numbers) >= _MAX_STATES:
                        raise _TooLarge
                    numbers[following] = len(numbers) + 2
                    waiting.append(following)
                row[codes] = _MATCHED if following is None else numbers[following] * _BYTES
            rows.append((numbers[state], row, self._reached(state, None) is None))
        table = np.zeros((len(numbers) + 2, _BYTES), np.uint16)
        table[_FOREIGN // _BYTES] = _FOREIGN
        at_end = np.zeros(len(table), np.uint8)
        for number, row, matches in rows:
            table[number], at_end[number] = row, matches
        return Automaton(table.ravel(), at_end, _FIRST)

    def _following(self, state: _State, code: int) -> _State | None:
        """The state after a character; None if there is a match before it."""
        takes = self._reached(state, code)
        if takes is None:
            return None
        places = frozenset(each.then for each in takes if each.members >> code & 1)
        return self._state(places, after_word=bool(WORD >> code & 1), at_begin=False)

    def _state(self, places: frozenset[int], *, after_word: bool, at_begin: bool) -> _State:
        return _State(places, after_word and self._sees_words, at_begin and self._sees_begin)

    def _reached(self, state: _State, code: int | None) -> list[_Take] | None:
        """What may take the next character, None at the end of the text; None if the pattern has matched."""
        before_word = code is not None and bool(WORD >> code & 1)
        holds = {
            PlaceKind.TEXT_BEGIN: state.at_begin,
            PlaceKind.TEXT_END: code is None,
            PlaceKind.WORD_BORDER: state.after_word != before_word,
            PlaceKind.NO_WORD_BORDER: state.after_word == before_word,
        }
        waiting, seen, takes = [*state.places, self._start], set(), []
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            match self._instructions[place]:
                case _Match():
                    return None
                case _Take() as take:
                    takes.append(take)
                case _Check(kind, then):
                    if holds[kind]:
                        waiting.append(then)
                case _Go(to):
                    waiting.extend(to)
        self._steps += len(seen)
        if self._steps > _MAX_STEPS:
            raise _TooLarge
        return takes


@njit(cache=True, nogil=True)
def run(data, offsets, table, ends, start, found):  # type: ignore[no-untyped-def]
    """Write the verdict on each text into `found`. The states that end a match lead to themselves."""
    rows = len(found)
    following = 0
    at = np.zeros(_LANES, np.uint64)
    until = np.zeros(_LANES, np.uint64)
    row = np.full(_LANES, -1, np.int64)
    state = np.zeros(_LANES, np.uint64)
    active = 0
    for lane in range(_LANES):
        if following < rows:
            row[lane], at[lane], until[lane] = (
                following,
                np.uint64(offsets[following]),
                np.uint64(offsets[following + 1]),
            )
            state[lane] = np.uint64(start)
            following += 1
            active += 1
    while active == _LANES:
        # As many steps as all four texts have.
        steps = np.uint64(_STRIDE)
        for lane in range(_LANES):
            steps = min(steps, until[lane] - at[lane])
        a0, a1, a2, a3 = at[0], at[1], at[2], at[3]
        s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
        for _ in range(steps):
            s0 = np.uint64(table[s0 + np.uint64(data[a0])])
            s1 = np.uint64(table[s1 + np.uint64(data[a1])])
            s2 = np.uint64(table[s2 + np.uint64(data[a2])])
            s3 = np.uint64(table[s3 + np.uint64(data[a3])])
            a0 += np.uint64(1)
            a1 += np.uint64(1)
            a2 += np.uint64(1)
            a3 += np.uint64(1)
        at[0], at[1], at[2], at[3] = a0, a1, a2, a3
        state[0], state[1], state[2], state[3] = s0, s1, s2, s3
        for lane in range(_LANES):
            while state[lane] < np.uint64(_FIRST) or at[lane] == until[lane]:
                found[row[lane]] = _verdict(state[lane], ends)
                if following == rows:
                    active -= 1
                    row[lane] = -1
                    break
                row[lane], at[lane] = following, np.uint64(offsets[following])
                until[lane], state[lane] = np.uint64(offsets[following + 1]), np.uint64(start)
                following += 1
    # The last few texts, one after another.
    for lane in range(_LANES):
        if row[lane] >= 0:
            now, place = state[lane], at[lane]
            while place < until[lane] and now >= np.uint64(_FIRST):
                now = np.uint64(table[now + np.uint64(data[place])])
                place += np.uint64(1)
            found[row[lane]] = _verdict(now, ends)


@njit(cache=True, nogil=True)
def _verdict(state, ends):  # type: ignore[no-untyped-def]
    if state == _MATCHED:
        return YES
    if state == _FOREIGN:
        return UNKNOWN
    return YES if ends[state // np.uint64(_BYTES)] else NO


def warm() -> None:
    """Compile or load the kernel for the types that scans use."""
    found = automaton_of("a")
    assert found is not None
    found.verdicts(*text_bytes(pa.array(["a"])))
