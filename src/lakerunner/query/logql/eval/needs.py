"""What a range aggregation needs of its entries: which labels, and whether their lines.

`sum by (level) (count_over_time(…))` needs one label of each entry, where `count_over_time(…)` alone needs all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR
from lakerunner.query.logql.needed import condition_names
from lakerunner.query.series.matchers import Matcher, MatchKind

#: The sum over series of these is the same aggregation over the entries of all the series.
_SUMMABLE = frozenset({"count_over_time", "rate", "bytes_over_time", "bytes_rate", "sum_over_time"})
#: Vector aggregations that may be done while entries are aggregated, by the range aggregations that allow it.
_ABSORBED = {"sum": _SUMMABLE, "max": frozenset({"max_over_time"}), "min": frozenset({"min_over_time"})}
#: Vector aggregations that make one series of each group.
_FOLDS = frozenset({"sum", "avg", "min", "max", "count", "stddev", "stdvar"})
_OF_LINES = frozenset({"bytes_over_time", "bytes_rate"})
#: Stages that only add labels. Without a reader of labels they change nothing.
_PARSERS = (ast.Json, ast.Logfmt, ast.Regexp, ast.PatternParser)


@dataclass(frozen=True, slots=True)
class Needs:
    #: The labels that tell series apart; None: all but `without`.
    by: frozenset[str] | None
    without: frozenset[str]
    #: The labels to read from the source; None: all. With `ERROR`, no broken line may be overlooked.
    names: frozenset[str] | None
    lines: bool
    #: Entries that a parser failed on count like others, because the query asks about errors.
    keeps_errors: bool


def absorbed(node: ast.VectorAggregate) -> ast.Grouping | None:
    """The grouping of a vector aggregation that its range aggregation can do itself, with the same result."""
    inner = node.expr
    if not isinstance(inner, ast.RangeAggregate) or inner.grouping is not None:
        return None
    if inner.op not in _ABSORBED.get(node.op, ()):
        return None
    return node.grouping or ast.Grouping()


def groups_of_entries(node: ast.VectorAggregate) -> tuple[ast.RangeAggregate, ast.Grouping] | None:
    """A range aggregation with a grouping that has the same series as the vector aggregation, at the same steps.

    `count by (trace_id) (count_over_time(…))` tells all series apart; to know its groups takes one label.
    """
    inner = node.expr
    if node.op not in _FOLDS or not isinstance(inner, ast.RangeAggregate) or inner.grouping is not None:
        return None
    if inner.op == "absent_over_time":
        return None
    return replace(inner, op="count_over_time", param=None), node.grouping or ast.Grouping()


#: Patterns that Loki simplifies to "everything": groups and flags around `.*` or nothing.
_ALL = re.compile(r"(?:\(\?i\)|\((?:\?:)?)*(?:\.(?:\*|\{0,\})\??)?\)*")


def needs_of(node: ast.RangeAggregate, outer: ast.Grouping | None = None, outer_op: str = "") -> Needs:
    """What the aggregation needs. `outer` is the grouping that it does for the vector aggregation `outer_op`."""
    grouping = outer if outer is not None else node.grouping
    if node.op == "absent_over_time":
        grouping = ast.Grouping()
    unwrap = node.range.unwrap
    own = frozenset() if unwrap is None else frozenset({unwrap.label})
    by = without = None
    if grouping is None or grouping.without:
        without = own | frozenset(grouping.labels if grouping is not None else ())
    else:
        by = frozenset(grouping.labels)
    # As in Loki, whose parsers know of a grouping only where it is a sum's or their own aggregation's.
    reaches_parser = by is not None and (outer is None or outer_op == "sum")
    names = None
    if by is not None:
        names = by | own
        if unwrap is not None:
            names |= {name for each in unwrap.filters for name in condition_names(each.condition)}
        if not reaches_parser:
            names |= {ERROR}
    keeps_errors = reaches_parser and (ERROR in (by or ()) or _asks_about_errors(node.range))
    return Needs(by, without or frozenset(), names, node.op in _OF_LINES, keeps_errors)


def without_idle_parsers(selector: ast.LogSelector, needs: Needs) -> ast.LogSelector:
    """The selector without parsers whose labels nothing reads.

    As in Loki, lines that such a parser would fail on then count like others.
    """
    if needs.names != frozenset() or needs.keeps_errors:
        return selector
    stages = [each for each in selector.stages if not _is_idle(each)]
    if any(not isinstance(stage, (*_PARSERS, ast.LineFilter, ast.Decolorize)) for stage in stages):
        return selector
    return replace(selector, stages=tuple(each for each in stages if not isinstance(each, _PARSERS)))


def _asks_about_errors(log_range: ast.LogRange) -> bool:
    """Whether a stage reads the label that says that an earlier stage failed."""
    filters = log_range.unwrap.filters if log_range.unwrap is not None else ()
    for stage in (*log_range.selector.stages, *filters):
        match stage:
            case _ if _is_idle(stage):
                pass
            case ast.LabelFilter(condition=condition):
                if ERROR in condition_names(condition):
                    return True
            case ast.LineFormat(template=template):
                if ERROR in template:
                    return True
            case ast.LabelFormat(assignments=assignments):
                if any(ERROR in each.value for each in assignments):
                    return True
            case _:
                pass
    return False


def _is_idle(stage: ast.Stage) -> bool:
    """Whether Loki leaves out a filter because of how its pattern is written. It does not ask about errors then.

    >>> patterns = (".*", "((?:.*?))", "(?i).{0,}", "", ".*.*", "^.*$")
    >>> filters = [ast.StringFilter(Matcher("a", MatchKind.REGEX, pattern)) for pattern in patterns]
    >>> [_is_idle(ast.LabelFilter(each)) for each in filters]
    [True, True, True, True, False, False]
    """
    match stage:
        case ast.LabelFilter(condition=ast.StringFilter(Matcher(_, MatchKind.REGEX, pattern))):
            return _ALL.fullmatch(pattern) is not None
        case _:
            return False
