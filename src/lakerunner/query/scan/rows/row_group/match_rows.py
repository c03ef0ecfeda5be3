"""Finds the rows of a row group that satisfy a condition: by statistics and filters, by pages, then by values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.query.scan.rows.conditions.decided import Condition, Left
from lakerunner.query.scan.rows.conditions.evaluate import Ints, Survivors, matching
from lakerunner.query.scan.rows.conditions.id_runs import Ids, concat_ids, ids_of
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING, And, Compare, Exists, In, Predicate, leaves
from lakerunner.query.scan.rows.conditions.prune import NOTHING, simplified, verdict_of
from lakerunner.query.scan.rows.request import RowTally
from lakerunner.query.scan.rows.row_group.by_runs import rows_of_runs, split_by_runs, verdict_by_runs
from lakerunner.query.scan.rows.row_group.facts import GroupFacts
from lakerunner.query.scan.rows.row_group.filters import by_bloom, by_needles
from lakerunner.query.scan.rows.row_group.group import GroupReader
from lakerunner.query.scan.rows.row_group.pieces import every_row
from lakerunner.query.scan.rows.row_group.prune_pages import rows_of_pages


@dataclass(frozen=True, slots=True)
class Undecided:
    """What statistics and filters do not decide of a scan in a row group: of its times, and of its condition."""

    times: tuple[Predicate, ...]
    predicate: Predicate
    condition: Condition

    @property
    def is_nothing(self) -> bool:
        return self.predicate == NOTHING

    @property
    def exact(self) -> Condition | None:
        """The condition, if the rows that satisfy it are the rows of the scan, and are remembered."""
        return None if self.times or self.condition.number is None or self.predicate == EVERYTHING else self.condition


def undecided(group: GroupReader, times: Sequence[Compare], condition: Condition, tally: RowTally) -> Undecided:
    """The times and the condition without what statistics and filters decide."""
    in_time = simplified(And(tuple(times)), lambda leaf: verdict_of(leaf, group.bounds_of)) if times else EVERYTHING
    if in_time == NOTHING:
        tally.pruned_by_statistics += 1
        return Undecided((), NOTHING, condition)
    conditions, place = group.opened.opener.conditions, group.place
    left = conditions.get(place, condition)
    if left is None:
        left = left_of(group, condition.predicate)
        conditions.put(place, condition, left)
    if left.excluded_by:
        setattr(tally, left.excluded_by, getattr(tally, left.excluded_by) + 1)
    return Undecided(() if in_time == EVERYTHING else (in_time,), left.predicate, condition)


def left_of(group: GroupFacts, predicate: Predicate) -> Left:
    """What statistics and filters leave of the predicate."""
    left = simplified(predicate, lambda leaf: verdict_by_runs(group, leaf) or verdict_of(leaf, group.bounds_of))
    if left == NOTHING:
        return Left(NOTHING, "pruned_by_statistics")
    if not split_by_runs(group, left)[1]:
        # The rows are known: filters say no more about them.
        return Left(left)
    left = simplified(left, lambda leaf: by_bloom(group, leaf))
    if left == NOTHING:
        return Left(NOTHING, "pruned_by_bloom")
    left = simplified(left, lambda leaf: by_needles(group, leaf))
    return Left(NOTHING, "pruned_by_needles") if left == NOTHING else Left(left)


def known_rows(group: GroupReader, left: Undecided, ids: tuple[str, Ids] | None) -> Ints | None:
    """The rows with one of the ids in the column, or that satisfy the condition, if that is known without reading."""
    if ids is not None:
        runs = group.kept_id_runs(ids[0])
        return None if runs is None else runs.rows_of(ids[1])
    return None if left.is_nothing or left.predicate == EVERYTHING else group.known_rows(left.condition)


def rows_of_ids(
    group: GroupReader, left: Undecided, ids: tuple[str, Ids], tally: RowTally, known: Ints | None = None
) -> Ints:
    """The rows with one of the ids in the column that satisfy what `undecided` left."""
    column, wanted = ids
    if known is not None:
        rows = known
    elif (runs := group.id_runs(column)) is not None:
        rows = runs.rows_of(wanted)
    else:
        of_rows, _ = ids_of(group.column(column, every_row(group.rows)))
        numbers, _ = concat_ids([wanted, of_rows]).numbered()
        rows = np.flatnonzero(np.isin(numbers[len(wanted) :], numbers[: len(wanted)]))
    if not len(rows):
        tally.pruned_by_ids += 1
        return rows
    parts = (*left.times, *(() if left.predicate == EVERYTHING else (left.predicate,)))
    return rows[matching(And(parts), group, rows)] if parts else rows


def compares_values(left: Undecided) -> bool:
    """Whether values are compared to decide, and no text is searched."""
    return all(isinstance(leaf, Compare | In | Exists) for leaf in leaves(left.predicate))


def candidate_rows(group: GroupReader, left: Undecided) -> Ints | None:
    """The rows that page bounds do not exclude, if values have to be compared to decide; None: texts are searched."""
    if left.predicate == EVERYTHING or not compares_values(left):
        return None
    return _candidates(group, *split_by_runs(group, _conjunction(left)))


def matching_rows(
    group: GroupReader, left: Undecided, tally: RowTally, known: Ints | None = None, candidates: Ints | None = None
) -> Ints:
    """The rows that satisfy what `undecided` left; `candidates` are those that page bounds leave, if that is known."""
    if left.is_nothing:
        return np.zeros(0, np.int64)
    if left.predicate == EVERYTHING:
        return _searched(group, And(left.times), tally) if left.times else every_row(group.rows)
    known = group.known_rows(left.condition) if known is None else known
    if known is None:
        found = _searched(group, _conjunction(left), tally, candidates)
        if not left.times:
            group.know_rows(left.condition, found)
        return found
    return known[matching(And(left.times), group, known)] if left.times and len(known) else known


def _searched(group: GroupReader, predicate: Predicate, tally: RowTally, candidates: Ints | None = None) -> Ints:
    decided, others = split_by_runs(group, predicate)
    rows = _candidates(group, decided, others) if candidates is None else candidates
    if not len(rows):
        tally.pruned_by_pages += 1
        return rows
    if not others:
        return rows
    found = matching(And(tuple(others)), group, rows, Survivors(passed=True))
    return np.flatnonzero(found) if len(rows) == group.rows else rows[found]


def _conjunction(left: Undecided) -> And:
    parts = left.predicate.parts if isinstance(left.predicate, And) else (left.predicate,)
    return And((*left.times, *parts))


def _candidates(group: GroupReader, decided: Sequence[Predicate], others: Sequence[Predicate]) -> Ints:
    """The rows that satisfy what runs decide, and that page bounds do not exclude by the other parts."""
    if not decided:
        return rows_of_pages(And(tuple(others)), group)
    rows = rows_of_runs(group, decided)
    return _common(rows, rows_of_pages(And(tuple(others)), group)) if others and len(rows) else rows


def _common(one: Ints, other: Ints) -> Ints:
    """The rows that are among both. Rows ascend; most often one or both have no gaps."""
    if not len(one) or not len(other):
        return one[:0]
    if one[-1] - one[0] + 1 != len(one):
        one, other = other, one
    if one[-1] - one[0] + 1 != len(one):
        return np.intersect1d(one, other, assume_unique=True)
    return other[np.searchsorted(other, one[0]) : np.searchsorted(other, one[-1], side="right")]
