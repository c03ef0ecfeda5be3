"""What a query may not say although its grammar allows it. Each check returns the reason, or None."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lakerunner.query.logql.ast import (
    AndFilter,
    Binary,
    Condition,
    Expr,
    LabelFilter,
    LabelReplace,
    LogSelector,
    OrFilter,
    RangeAggregate,
    VectorAggregate,
)
from lakerunner.query.logql.functions import LIMITING, RANGE_FUNCTIONS, SORTING, Unwrapping
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.syntax.limits import MAX_DEPTH

#: Levels of a tree. Chains of operators count: whoever evaluates a tree descends through all of its levels. Fewer than
#: a text may nest, because the printed tree has parentheses around every operation.
MAX_LEVELS = MAX_DEPTH - 10
#: The parameter of `topk` and its like.
_COUNT = re.compile(r"[0-9]{1,18}")


def too_deep(expr: Expr) -> Expr | Condition | None:
    """The first part that is deeper than `MAX_LEVELS`."""
    pending: list[tuple[Expr | Condition, int]] = [(expr, 1)]
    while pending:
        node, level = pending.pop()
        if level > MAX_LEVELS:
            return node
        pending += ((child, level + 1) for child in _children(node))
    return None


def _children(node: Expr | Condition) -> list[Expr | Condition]:
    match node:
        case Binary() | AndFilter() | OrFilter():
            return [node.left, node.right]
        case VectorAggregate() | LabelReplace():
            return [node.expr]
        case RangeAggregate(range=logs):
            return [logs.selector, *(each.condition for each in (logs.unwrap.filters if logs.unwrap else ()))]
        case LogSelector(stages=stages):
            return [stage.condition for stage in stages if isinstance(stage, LabelFilter)]
    return []


def selects_everything(matchers: Sequence[Matcher]) -> str | None:
    """A selector must leave something out."""
    if all(matcher.matches("") for matcher in matchers):
        return "at least one matcher must not match the empty value"
    return None


def bad_range_aggregate(function: str, *, param: bool, unwrapped: bool, grouped: bool) -> str | None:
    """
    >>> bad_range_aggregate("rate", param=False, unwrapped=False, grouped=True)
    'rate does not take "by" or "without"'
    """
    takes = RANGE_FUNCTIONS[function]
    if param and not takes.param:
        return f"{function} takes no parameter"
    if takes.param and not param:
        return f"{function} needs a parameter before the range"
    if grouped and not takes.grouping:
        return f'{function} does not take "by" or "without"'
    if unwrapped and takes.unwrap is Unwrapping.NEVER:
        return f"{function} counts lines, and cannot be applied to unwrapped values"
    if not unwrapped and takes.unwrap is Unwrapping.ALWAYS:
        return f"{function} needs unwrapped values"
    return None


def bad_vector_aggregate(function: str, param: str | None, *, grouped: bool, by_labels: bool) -> str | None:
    """
    >>> bad_vector_aggregate("topk", "0", grouped=False, by_labels=False)
    'topk needs a whole number above 0, not 0'
    """
    if function not in LIMITING:
        if param is not None:
            return f"{function} takes no parameter"
        if function in SORTING and by_labels:
            return f'{function} does not take "by" or "without"'
        return None
    if param is None:
        return f"{function} needs the number of series before the vector"
    if not _COUNT.fullmatch(param) or int(param) == 0:
        return f"{function} needs a whole number above 0, not {param}"
    if function == "approx_topk" and grouped:
        return f'{function} does not take "by" or "without"'
    return None
