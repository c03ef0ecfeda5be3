"""LogQL: which parts of a metric query a rule could answer, and the normal form of their selections."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakerunner.model.signals.logs import LOGS
from lakerunner.query.logql import ast
from lakerunner.query.logql.always_present import always_present
from lakerunner.query.logql.entries import ERROR
from lakerunner.query.logql.eval.needs import absorbed, needs_of, without_idle_stages
from lakerunner.query.logql.needed import condition_names
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.logql.records import ALWAYS, EXTRACTED
from lakerunner.query.logql.stages.compile import in_order
from lakerunner.query.logql.stages.label_patterns import Search, simplified
from lakerunner.query.rules.rule import Candidate, Function
from lakerunner.query.rules.selection import Condition, Selection
from lakerunner.query.series.matchers import Matcher, MatchKind, any_of

_NS_PER_S = 1_000_000_000
_FUNCTIONS = {
    "count_over_time": Function.COUNT,
    "rate": Function.COUNT,
    "bytes_over_time": Function.BYTES,
    "bytes_rate": Function.BYTES,
}
_OF_VALUES = {
    "sum_over_time": Function.SUM,
    "rate": Function.SUM,
    "min_over_time": Function.MIN,
    "max_over_time": Function.MAX,
    "avg_over_time": Function.AVG,
    "quantile_over_time": Function.QUANTILE,
}
_RATES = frozenset({"rate", "bytes_rate"})
#: Aggregations with one value per group, whatever that is.
_ONE_EACH = frozenset({"sum", "count", "min", "max", "avg", "stddev", "stdvar"})
_NO_ERROR = ast.StringFilter(Matcher(ERROR, MatchKind.EQUAL, ""))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a query, in the forms in which a rule may answer it; or why no rule can."""

    node: ast.MetricExpr
    candidates: tuple[Candidate, ...] = ()
    refusal: str = ""
    #: The part that this one is a part of.
    within: ast.MetricExpr | None = None

    @property
    def text(self) -> str:
        return print_expr(self.node)


def parts_of(expr: ast.MetricExpr) -> Iterator[Part]:
    """The largest parts of an expression that aggregate entries, and those of which no rule can answer any."""
    pending: list[ast.MetricExpr] = [expr]
    within: ast.MetricExpr | None = None
    while pending:
        node = pending.pop()
        match node:
            case ast.VectorAggregate(op="count", expr=ast.VectorAggregate(expr=ast.RangeAggregate()) as values) if (
                part := _distinct_part(node, values)
            ) is not None:
                yield part
                pending.append(values)
                within = node
            case ast.VectorAggregate(expr=ast.RangeAggregate(grouping=None) as inner):
                grouping = absorbed(node)
                part = _part(node, inner, grouping, node.op, f"{node.op}({inner.op}(…))")
                yield dataclasses.replace(part, within=within)
                within = None
            case ast.RangeAggregate():
                yield _part(node, node, node.grouping, "", node.op)
            case ast.Binary(left=left, right=right):
                pending += [right, left]
            case ast.VectorAggregate() | ast.LabelReplace():
                pending.append(node.expr)
            case _:
                pass


def selection_of(text: str) -> Selection:
    """The selection of a rule, which is a log query."""
    expr = parse(text)
    assert isinstance(expr, ast.LogSelector)
    return _selection(expr)


def field_of(unwrap: ast.Unwrap) -> str:
    return f"{unwrap.conversion}({unwrap.label})" if unwrap.conversion else unwrap.label


def _part(
    node: ast.MetricExpr, inner: ast.RangeAggregate, grouping: ast.Grouping | None, outer_op: str, what: str
) -> Part:
    unwrap = inner.range.unwrap
    function = (_FUNCTIONS if unwrap is None else _OF_VALUES).get(inner.op)
    if function is None or (outer_op and grouping is None):
        return Part(node, refusal=f"{what} does not follow from counts, sums, minima or maxima of parts")
    if grouping is None:
        return Part(node, refusal=f"{what} keeps every label of its entries; a rule keeps its dimensions")
    if grouping.without:
        return Part(node, refusal="it groups by all labels but some; a rule keeps its dimensions")
    if unwrap is not None and (refusal := _of_unwrap(unwrap, grouping)):
        return Part(node, refusal=refusal)
    outer = grouping if outer_op else None
    candidate = Candidate(
        text=print_expr(node),
        signal=LOGS.name,
        selection=_selection(inner.range.selector),
        function=function,
        field="" if unwrap is None else field_of(unwrap),
        by=grouping.labels,
        range_ns=inner.range.range_ns,
        offset_ns=inner.range.offset_ns,
        divisor=inner.range.range_ns / _NS_PER_S if inner.op in _RATES else 1.0,
        quantile=inner.param or 0.0,
        always=always_present(inner.range.selector.stages).intersection(grouping.labels),
    )
    return Part(node, _with_selectors(candidate, inner, outer, outer_op))


def _with_selectors(
    candidate: Candidate, inner: ast.RangeAggregate, outer: ast.Grouping | None, outer_op: str
) -> tuple[Candidate, ...]:
    """As in Loki, a parser that nothing reads is left out. A rule may have it or not."""
    selector = inner.range.selector
    selectors = dict.fromkeys((without_idle_stages(selector, needs_of(inner, outer, outer_op)), selector))
    return tuple(dataclasses.replace(candidate, selection=_selection(each)) for each in selectors)


def _distinct_part(node: ast.VectorAggregate, values: ast.VectorAggregate) -> Part | None:
    """`count by (a) (sum by (a, b) (count_over_time(…)))`: how many different values of b there are."""
    inner = values.expr
    by, each = node.grouping or ast.Grouping(), values.grouping
    if not isinstance(inner, ast.RangeAggregate) or inner.grouping is not None or inner.range.unwrap is not None:
        return None
    if each is None or by.without or each.without or values.op not in _ONE_EACH or inner.op not in _FUNCTIONS:
        return None
    counted = sorted({*each.labels} - {*by.labels})
    if len(counted) != 1 or not {*by.labels} <= {*each.labels}:
        return None
    candidate = Candidate(
        text=print_expr(node),
        signal=LOGS.name,
        selection=_selection(inner.range.selector),
        function=Function.DISTINCT,
        field=counted[0],
        by=by.labels,
        range_ns=inner.range.range_ns,
        offset_ns=inner.range.offset_ns,
        always=always_present(inner.range.selector.stages).intersection(by.labels),
    )
    return Part(node, _with_selectors(candidate, inner, each, values.op))


def _of_unwrap(unwrap: ast.Unwrap, grouping: ast.Grouping) -> str:
    """Why a rule over the label cannot answer; empty if it can."""
    # A value that is no number makes a hole in the coverage of the rule, so that this filter changes nothing.
    if unwrap.filters not in ((), (ast.LabelFilter(_NO_ERROR),)):
        return "it filters after unwrap"
    return "it groups by the label that it unwraps" if unwrap.label in grouping.labels else ""


def _selection(selector: ast.LogSelector) -> Selection:
    stages = in_order(selector.stages)
    changes = [stage for stage in stages if _is_change(stage)]
    levels: list[list[Condition]] = [[] for _ in range(len(changes) + 1)]
    level = 0
    for stage in stages:
        if _is_change(stage):
            level += 1
        elif isinstance(stage, ast.LineFilter):
            levels[level].append(Condition(f"line filter {_shown(stage)}", other=stage))
        elif isinstance(stage, ast.LabelFilter):
            levels[level] += [_condition(each, changes[level:]) for each in _conjuncts(stage.condition)]
    # Matchers are a level of their own: their patterns see line breaks, those of label filters do not.
    first = tuple(
        Condition(_matcher_text(each), matcher=each, lasting=_lasts(each.name, changes)) for each in selector.matchers
    )
    return Selection((first, *map(tuple, levels)), tuple(changes))


def _is_change(stage: ast.Stage) -> bool:
    """Whether it matters if a filter stands before or after the stage."""
    if isinstance(stage, ast.LabelFilter):
        return ERROR in condition_names(stage.condition)
    return not isinstance(stage, ast.LineFilter)


def _conjuncts(condition: ast.Condition) -> Iterator[ast.Condition]:
    if isinstance(condition, ast.AndFilter):
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _condition(condition: ast.Condition, later: Sequence[ast.Stage]) -> Condition:
    text = f"label filter {_shown(ast.LabelFilter(condition))}"
    if isinstance(condition, ast.StringFilter) and (matcher := _plain(condition.matcher)) is not None:
        return Condition(text, matcher=matcher, lasting=_lasts(matcher.name, later))
    return Condition(text, other=condition)


def _plain(matcher: Matcher) -> Matcher | None:
    """The matcher, if a label of series accepts the same values. As in Loki, patterns of label filters often do not."""
    if matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL):
        return matcher
    texts = []
    for search in simplified(matcher.value) or (None,):
        if not isinstance(search, Search) or search.anywhere or search.ignore_case:
            return None
        texts.append(search.text)
    return Matcher(matcher.name, matcher.kind, any_of(matcher.name, texts).value)


def _lasts(label: str, later: Sequence[ast.Stage]) -> bool:
    """Whether no later stage gives the label another value, or takes it away."""
    return not any(_may_change(stage, label) for stage in later)


def _may_change(stage: ast.Stage, label: str) -> bool:
    match stage:
        case ast.LineFormat() | ast.Decolorize() | ast.LineFilter() | ast.LabelFilter():
            return False
        case ast.LabelFormat(assignments=assignments):
            return any(label == each.label or (not each.is_template and label == each.value) for each in assignments)
        case ast.Drop(choices=choices):
            return any(label == each.label for each in choices)
        case ast.Keep():
            return True
    # A parser calls a field differently if an entry has a label of that name. These, every entry has.
    return label not in ALWAYS or label.endswith(EXTRACTED)


def _matcher_text(matcher: Matcher) -> str:
    return f"matcher {{{matcher.name}{matcher.kind.value}{matcher.value!r}}}"


def _shown(stage: ast.Stage) -> str:
    """The stage as text."""
    return print_expr(ast.LogSelector((), (stage,))).removeprefix("{}").strip()
