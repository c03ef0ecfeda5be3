"""Which stored labels a pipeline reads. Columns of other labels need not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakerunner.query.logql import ast
from lakerunner.query.logql.records import EXTRACTED


def stored_names(stages: Iterable[ast.Stage], wanted: frozenset[str] | None) -> frozenset[str] | None:
    """The stored labels that the stages read, or that are wanted after them; None: all.

    >>> sorted(stored_names([ast.Json()], frozenset({"level_extracted"})))
    ['level', 'level_extracted']
    """
    if wanted is None:
        return None
    names = set(wanted)
    for stage in stages:
        read = _names_of(stage)
        if read is None:
            return None
        names.update(read)
    # Whether a parser calls a field `x` or `x_extracted` depends on whether `x` is stored.
    return frozenset(names) | {name.removesuffix(EXTRACTED) for name in names}


def condition_names(condition: ast.Condition) -> Iterator[str]:
    match condition:
        case ast.AndFilter(left=left, right=right) | ast.OrFilter(left=left, right=right):
            yield from condition_names(left)
            yield from condition_names(right)
        case ast.StringFilter(matcher=matcher):
            yield matcher.name
        case _:
            yield condition.label


def can_drop(stages: Iterable[ast.Stage]) -> bool:
    """Whether the stages may leave entries out."""
    return any(isinstance(stage, ast.LineFilter | ast.LabelFilter) for stage in stages)


def _names_of(stage: ast.Stage) -> Iterable[str] | None:
    match stage:
        case ast.LabelFilter(condition=condition):
            return condition_names(condition)
        case ast.LineFormat():
            return None
        case ast.LabelFormat(assignments=assignments):
            if any(each.is_template for each in assignments):
                return None
            return [name for each in assignments for name in (each.label, each.value)]
        case _:
            return ()
