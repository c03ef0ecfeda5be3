"""Which stored labels a pipeline reads. Columns of other labels need not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakerunner.query.logql import ast
from lakerunner.query.logql.records import EXTRACTED
from lakerunner.query.logql.stages.template import parse as parse_template
from lakerunner.query.logql.stages.template.reads import reads


def stored_names(stages: Iterable[ast.Stage], wanted: frozenset[str] | None) -> frozenset[str] | None:
    """The stored labels that the stages read, or that are wanted after them; None: all.

    >>> sorted(stored_names([ast.Json()], frozenset({"level_extracted"})))
    ['level', 'level_extracted']
    >>> sorted(stored_names([ast.LineFormat("{{.msg}} {{upper .level}}")], frozenset()))
    ['level', 'msg']
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
        case ast.LineFormat(template=template):
            return reads(parse_template(template)).labels
        case ast.LabelFormat(assignments=assignments):
            return _names_of_assignments(assignments)
        case _:
            return ()


def _names_of_assignments(assignments: Iterable[ast.Assignment]) -> Iterable[str] | None:
    names: set[str] = set()
    for each in assignments:
        read = reads(parse_template(each.value)).labels if each.is_template else {each.value}
        if read is None:
            return None
        names |= {each.label, *read}
    return names
