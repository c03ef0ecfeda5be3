"""Evaluates a predicate over given rows. Columns are read only for rows that are still undecided."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import as_text
from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.scan.rows.conditions.automaton import UNKNOWN, YES, Automaton, automaton_of
from lakerunner.query.scan.rows.conditions.compare import Mask, compare, has_text, mask_of
from lakerunner.query.scan.rows.conditions.predicate import (
    And,
    Compare,
    Contains,
    Exists,
    In,
    Leaf,
    Matches,
    Not,
    Op,
    Or,
    Predicate,
    Ref,
    Text,
    leaves,
)
from lakerunner.query.scan.rows.conditions.required_texts import required_texts
from lakerunner.query.scan.rows.conditions.substring import Choice, Needle, containing
from lakerunner.query.series.patterns import STEPS_PER_CHECK

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
#: Returns a mask of the values that pass. Null never passes. The array must not be dictionary-encoded.
Test = Callable[[pa.Array], Mask]
Check = Callable[[], object]
#: Below this many equal texts, comparing one by one is as fast as a hash set.
_FEW_VALUES = 3
#: Texts of one clause, and clauses, that are looked for before a pattern is matched. More cost as much as matching.
_MAX_NEEDLES, _MAX_CLAUSES = 3, 2
#: For fewer bytes, an automaton would take longer to make than it saves.
_MANY_BYTES = 256 << 10
#: Texts that an automaton matches before the next check.
_ROWS_PER_CHECK = 65_536
#: A part that was matched in this time may be followed by one twice as large.
_SOON_S = 0.005
#: If more than this share of the values is left, all are tested: copying those that are left costs as much.
_MANY, _MOST = 0.25, 0.8


@dataclass(frozen=True, slots=True)
class Survivors:
    """Which rows may still satisfy the whole predicate after a test, and which columns are tested again for them."""

    #: Those that pass or those that fail; None: both.
    passed: bool | None = None
    tested_again: frozenset[str] = frozenset()

    def flipped(self) -> Survivors:
        return self if self.passed is None else replace(self, passed=not self.passed)


_ALL = Survivors()


class Columns(Protocol):
    """The values of stored names."""

    def arrays(self, name: str, rows: Ints) -> list[pa.Array]:
        """The arrays that may hold the rows' values, with a value or null per row. The first non-null value counts."""
        ...

    def tested(self, name: str, rows: Ints, test: Test, survivors: Survivors) -> tuple[Mask, Mask | None] | None:
        """Which values pass the test and which are null, None: none, if not all are to be kept; else None."""
        ...

    def has_survivors_only(self, ref: Ref) -> bool:
        """Whether values are at hand of rows that survived an earlier test alone."""
        ...

    def check(self) -> None:
        """Raise if the rows are no longer wanted."""
        ...

    def cost(self, ref: Ref) -> int:
        """The relative cost of reading the values. Cheaper conditions are evaluated first."""
        ...


def matching(predicate: Predicate, columns: Columns, rows: Ints, survivors: Survivors = _ALL) -> Mask:
    """A mask of the rows that satisfy the predicate."""
    match predicate:
        case And(parts):
            return _narrowed(parts, columns, rows, survivors)
        case Or(parts):
            # A disjunction holds unless all of its parts fail.
            return ~_narrowed(tuple(map(negated, parts)), columns, rows, survivors.flipped())
        case Not(part):
            return ~matching(part, columns, rows, survivors.flipped())
        case _:
            return _leaf(predicate, columns, rows, survivors)


def negated(predicate: Predicate) -> Predicate:
    return predicate.part if isinstance(predicate, Not) else Not(predicate)


def _narrowed(parts: tuple[Predicate, ...], columns: Columns, rows: Ints, survivors: Survivors) -> Mask:
    """The rows that satisfy all parts. If others may survive too, a part alone does not tell which rows do."""
    alive = np.ones(len(rows), np.bool_)
    ordered = sorted(parts, key=lambda part: _cost(part, columns))
    for number, part in enumerate(ordered):
        left = np.flatnonzero(alive)
        if not len(left):
            break
        after = _ALL
        if survivors.passed:
            later = {name for each in ordered[number + 1 :] for leaf in leaves(each) for name in leaf.ref.names()}
            after = replace(survivors, tested_again=survivors.tested_again | later)
        most = _MOST if _is_slow(part) else _MANY
        if len(left) > len(rows) * most and not any(columns.has_survivors_only(leaf.ref) for leaf in leaves(part)):
            alive &= matching(part, columns, rows, after)
        else:
            alive[left] = matching(part, columns, rows[left], after)
    return alive


def _is_slow(predicate: Predicate) -> bool:
    """Whether testing a value costs more than copying it."""
    return any(isinstance(leaf, Matches) for leaf in leaves(predicate))


def _cost(predicate: Predicate, columns: Columns) -> int:
    match predicate:
        case And(parts) | Or(parts):
            return max((_cost(part, columns) for part in parts), default=0)
        case Not(part):
            return _cost(part, columns)
        case Matches(ref):
            return 4 * columns.cost(ref)
        case Contains(ref):
            return 2 * columns.cost(ref)
        case _:
            return columns.cost(predicate.ref)


def _leaf(leaf: Leaf, columns: Columns, rows: Ints, survivors: Survivors) -> Mask:
    columns.check()
    test = test_of(leaf, columns.check)
    found = np.zeros(len(rows), np.bool_)
    undecided: Mask | None = None
    names = leaf.ref.names()
    if len(names) > 1:
        # One that fails by its value under the first name may pass by that under the second.
        survivors = _ALL
    for name in names:
        for passed, absent in _tested(columns, name, rows, test, survivors):
            found |= passed if undecided is None else passed & undecided
            if absent is None:
                return found
            undecided = absent if undecided is None else undecided & absent
            if not undecided.any():
                return found
    return found


def _tested(
    columns: Columns, name: str, rows: Ints, test: Test, survivors: Survivors
) -> Iterator[tuple[Mask, Mask | None]]:
    """For each array that may hold the values: which of them pass, and which are null."""
    apart = columns.tested(name, rows, test, survivors)
    if apart is not None:
        yield apart
        return
    for array in columns.arrays(name, rows):
        yield tested(test, array), mask_of(array.is_null()) if array.null_count else None


def tested(test: Test, array: pa.Array) -> Mask:
    """Apply the test to every value. With a dictionary, each distinct value is tested once."""
    if not pa.types.is_dictionary(array.type):
        return test(array)
    passed = test(array.dictionary)
    if not passed.any():
        return np.zeros(len(array), np.bool_)
    if array.null_count == 0:
        if passed.all():
            return np.ones(len(array), np.bool_)
        by_row: Mask = passed[array.indices.to_numpy()]
        return by_row
    return mask_of(pa.array(passed).take(array.indices))


def test_of(leaf: Leaf, check: Check = lambda: None) -> Test:
    match leaf:
        case Compare(_, op, value):
            return lambda array: compare(array, op, value)
        case In(_, values):
            return _in(values, check)
        case Matches():
            choices: dict[Needle, Choice] = defaultdict(Choice)
            return lambda array: (
                _matches(as_text(array), leaf, check, choices) if has_text(array.type) else _none(array)
            )
        case Contains(_, needle):
            wanted, choice = Needle(needle), Choice()
            return lambda array: containing(as_text(array), wanted, choice) if has_text(array.type) else _none(array)
        case Exists():
            return lambda array: mask_of(array.is_valid())


def _matches(texts: pa.Array, leaf: Matches, check: Check, choices: Mapping[Needle, Choice]) -> Mask:
    """A mask of the texts that match. Only texts that contain what every match contains are matched."""
    required = required_texts(leaf.expression)
    clauses = [clause for clause in required.clauses if len(clause) <= _MAX_NEEDLES]
    candidates = np.ones(len(texts), np.bool_)
    count = len(texts)
    # The clause whose shortest text is the longest first: it leaves the fewest.
    for clause in sorted(clauses, key=lambda clause: -min(len(needle.text) for needle in clause))[:_MAX_CLAUSES]:
        if count > len(texts) * _MANY:
            check()
            candidates &= np.logical_or.reduce([containing(texts, needle, choices[needle]) for needle in clause])
            count = int(candidates.sum())
    if required.is_all and clauses:
        return candidates
    if count > len(texts) * _MOST:
        return _matched(texts, leaf, check)
    if count:
        candidates[candidates] = _matched(texts.filter(pa.array(candidates)), leaf, check)
    return candidates


def _matched(texts: pa.Array, leaf: Matches, check: Check) -> Mask:
    """A mask of the texts that match. Arrow cannot be interrupted, so it gets as much at a time as is matched soon."""
    pattern = leaf.compiled
    data, offsets = text_bytes(texts)
    pattern.steps(int(np.diff(offsets).max(initial=0)))
    if offsets[-1] - offsets[0] >= _MANY_BYTES and (automaton := automaton_of(leaf.expression)) is not None:
        return _by_automaton(automaton, texts, data, offsets, leaf, check)
    return _by_re2(texts, offsets, leaf, check)


def _by_automaton(
    automaton: Automaton, texts: pa.Array, data: Bytes, offsets: Ints32, leaf: Matches, check: Check
) -> Mask:
    found = np.zeros(len(texts), np.bool_)
    for begin in range(0, len(texts), _ROWS_PER_CHECK):
        check()
        verdicts = automaton.verdicts(data, offsets[begin : begin + _ROWS_PER_CHECK + 1])
        part = found[begin : begin + len(verdicts)]
        part[:] = verdicts == YES
        unknown = np.flatnonzero(verdicts == UNKNOWN)
        if len(unknown):
            others = texts.take(pa.array(begin + unknown))
            part[unknown] = _by_re2(others, text_bytes(others)[1], leaf, check)
    if texts.null_count:
        found &= texts.is_valid().to_numpy(zero_copy_only=False)
    return found


def _by_re2(texts: pa.Array, offsets: Ints32, leaf: Matches, check: Check) -> Mask:
    pattern = leaf.compiled
    found = np.zeros(len(texts), np.bool_)
    begin, at_once_bytes = 0, max(1, STEPS_PER_CHECK // pattern.instructions)
    while begin < len(texts):
        check()
        began_s = time.perf_counter()
        end = int(np.searchsorted(offsets, int(offsets[begin]) + at_once_bytes, side="right")) - 1
        part = texts.slice(begin, max(1, end - begin))
        found[begin : begin + len(part)] = mask_of(pc.match_substring_regex(part, leaf.expression))
        begin += len(part)
        # The first estimate is the worst case. Few patterns are that slow.
        if time.perf_counter() - began_s < _SOON_S:
            at_once_bytes *= 2
    return found


def _none(array: pa.Array) -> Mask:
    return np.zeros(len(array), np.bool_)


def _in(values: tuple[object, ...], check: Check) -> Test:
    texts = [value.value for value in values if isinstance(value, Text)]
    single = [value for value in values if len(texts) <= _FEW_VALUES or not isinstance(value, Text)]
    wanted = pa.array(texts, pa.string())

    def test(array: pa.Array) -> Mask:
        found = np.zeros(len(array), np.bool_)
        for value in single:
            check()
            found |= compare(array, Op.EQUAL, value)  # type: ignore[arg-type]
        if len(texts) > _FEW_VALUES and has_text(array.type):
            found |= mask_of(pc.is_in(as_text(array), value_set=wanted))
        return found

    return test


def overflow_values(maps: pa.MapArray, name: str) -> pa.Array:
    """The text under the name in every row's overflow map; null if there is none."""
    offsets = maps.offsets.to_numpy()
    hits = np.flatnonzero(mask_of(pc.equal(maps.keys, name)))
    hits = hits[(hits >= offsets[0]) & (hits < offsets[-1])]
    index = np.zeros(len(maps), np.int64)
    absent = np.ones(len(maps), np.bool_)
    # The hit belongs to the last map that begins at or before it. Null maps are empty.
    at = np.searchsorted(offsets, hits, side="right") - 1
    index[at], absent[at] = hits, False
    return maps.items.take(pa.array(index, mask=absent))
