"""Decides conditions on a sorted column by the runs of its values (`store/runs.py`), without reading the column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakerunner.query.scan.rows.conditions.compare import Mask
from lakerunner.query.scan.rows.conditions.evaluate import Ints, Survivors, Test, matching
from lakerunner.query.scan.rows.conditions.predicate import And, Compare, Exists, Leaf, Op, Predicate, Ref, Text, leaves
from lakerunner.query.scan.rows.conditions.prune import Verdict
from lakerunner.query.scan.rows.row_group.facts import GroupFacts
from lakerunner.query.scan.rows.row_group.pieces import every_row
from lakerunner.store.runs import Runs


def verdict_by_runs(group: GroupFacts, leaf: Leaf) -> Verdict | None:
    """What the values that the row group has say about a condition; None if it is about another column."""
    runs = group.runs
    if runs is None or not _is_about(runs, group, leaf):
        return None
    passed = _passed(runs, leaf)
    return Verdict(bool(passed.any()), not passed.all())


def split_by_runs(group: GroupFacts, predicate: Predicate) -> tuple[Sequence[Predicate], Sequence[Predicate]]:
    """The parts of the predicate that runs decide, all of which must hold, and the others."""
    parts = predicate.parts if isinstance(predicate, And) else (predicate,)
    runs = group.runs
    if runs is None:
        return (), parts
    decided = [all(_is_about(runs, group, leaf) for leaf in leaves(part)) for part in parts]
    return (
        [part for part, by_runs in zip(parts, decided, strict=True) if by_runs],
        [part for part, by_runs in zip(parts, decided, strict=True) if not by_runs],
    )


def rows_of_runs(group: GroupFacts, parts: Sequence[Predicate]) -> Ints:
    """The rows that satisfy parts that runs decide."""
    runs = group.runs
    assert runs is not None
    found = np.flatnonzero(_passed(runs, parts[0] if len(parts) == 1 else And(tuple(parts))))
    every = every_row(group.rows)
    if not len(found):
        return every[:0]
    if found[-1] - found[0] + 1 == len(found):
        return every[runs.starts[found[0]] : runs.starts[found[-1] + 1]]
    return np.concatenate([every[runs.starts[run] : runs.starts[run + 1]] for run in found])


def _is_about(runs: Runs, group: GroupFacts, leaf: Leaf) -> bool:
    """Whether the value that the condition looks at is that of the column. It has one in every row."""
    for name in leaf.ref.names():
        if name == runs.column:
            return True
        if group.footer.may_overflow(name, group.number):
            return False
        if name in group.footer.fields and not group.bounds(name).all_null:
            return False
    return False


def _passed(runs: Runs, predicate: Predicate) -> Mask:
    """Which runs satisfy the predicate."""
    match predicate:
        # As most queries ask. Calls of Arrow would take longer than reading a page.
        case Compare(_, Op.EQUAL, Text(text)):
            return np.array([value == text for value in runs.values])
        case Exists():
            return np.ones(len(runs), np.bool_)
    return matching(predicate, _ValuesOfRuns(runs), np.arange(len(runs)))


class _ValuesOfRuns:
    """The values of runs, as `Columns` of a row each."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def tested(self, name: str, rows: Ints, test: Test, survivors: Survivors) -> None:
        """The values are in memory."""

    def has_survivors_only(self, ref: Ref) -> bool:
        return False

    def arrays(self, name: str, rows: Ints) -> list[pa.Array]:
        if name != self._runs.column:
            return []
        return [pa.array([self._runs.values[row] for row in rows], pa.string())]

    def check(self) -> None:
        """There are few."""

    def cost(self, ref: Ref) -> int:
        return 0
