"""What a range aggregation needs of its entries: which labels, and whether their lines.

`sum by (level) (count_over_time(…))` needs one label of each entry, where `count_over_time(…)` alone needs all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR
from lakerunner.query.logql.needed import condition_names
from lakerunner.query.logql.stages.template import parse as parse_template
from lakerunner.query.logql.stages.template.reads import reads
from lakerunner.query.series.matchers import Matcher, MatchKind

#: The sum over series of these is the same aggregation over the entries of all the series.
_SUMMABLE = frozenset({"count_over_time", "rate", "bytes_over_time", "bytes_rate", "sum_over_time"})
#: Vector aggregations that may be done while entries are aggregated, by the range aggregations that allow it.
_ABSORBED = {"sum": _SUMMABLE, "max": frozenset({"max_over_time"}), "min": frozenset({"min_over_time"})}
#: Vector aggregations that make one series of each group.
_FOLDS = frozenset({"sum", "avg", "min", "max", "count", "stddev", "stdvar"})
_OF_LINES = frozenset({"bytes_over_time", "bytes_rate"})
#: Stages that read labels from the line. Loki does not run them if nothing reads a label, `unpack` neither.
_PARSERS = (ast.Json, ast.Logfmt, ast.Regexp, ast.PatternParser, ast.Unpack)


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
    lines = node.op in _OF_LINES
    keeps_errors = reaches_parser and (ERROR in (by or ()) or _asks_about_errors(node.range, lines))
    return Needs(by, without or frozenset(), names, lines, keeps_errors)


def without_idle_stages(selector: ast.LogSelector, needs: Needs) -> ast.LogSelector:
    """The selector without lines that nothing reads and without parsers whose labels nothing reads.

    As in Loki, entries that such a stage would fail on then count like others.
    """
    stages = _read_stages(selector.stages, needs.lines)
    if needs.names == frozenset() and not needs.keeps_errors and not any(map(_reads_labels, stages)):
        stages = tuple(each for each in stages if not isinstance(each, _PARSERS))
    return replace(selector, stages=stages)


def _read_stages(stages: Sequence[ast.Stage], lines: bool) -> tuple[ast.Stage, ...]:
    """The stages without filters that keep everything, and without lines that no filter, parser or count reads.

    >>> stages = [ast.LineFormat("{{.a}}"), ast.Json(), ast.LineFormat("{{.b}}")]
    >>> len(_read_stages(stages, lines=True)), len(_read_stages(stages, lines=False))
    (3, 2)
    """
    read: list[ast.Stage] = []
    is_read = lines
    for stage in reversed(stages):
        is_read |= isinstance(stage, (*_PARSERS, ast.LineFilter))
        if not _is_idle(stage) and (is_read or not isinstance(stage, ast.LineFormat)):
            read.append(stage)
    return tuple(reversed(read))


def _reads_labels(stage: ast.Stage) -> bool:
    """Whether Loki runs parsers for the stage. It does not for those that choose labels: keep and drop."""
    match stage:
        case ast.LabelFilter():
            return True
        case ast.LineFormat(template=template):
            return _has_fields(template)
        case ast.LabelFormat(assignments=assignments):
            return any(not each.is_template or _has_fields(each.value) for each in assignments)
        case _:
            return False


def _has_fields(template: str) -> bool:
    return reads(parse_template(template)).labels != frozenset()


def _asks_about_errors(log_range: ast.LogRange, lines: bool) -> bool:
    """Whether a stage reads the label that says that an earlier stage failed."""
    filters = log_range.unwrap.filters if log_range.unwrap is not None else ()
    for stage in (*_read_stages(log_range.selector.stages, lines), *filters):
        match stage:
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
