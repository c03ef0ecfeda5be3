"""Which expressions have steps that depend on each other, and so cannot be evaluated in groups of steps.

Whether a series' metric name goes is decided, as in Prometheus, once for the whole range. Where a series may come from
two sides of an `or`, one that keeps the name and one that drops it, the first step on which it occurs decides.
"""

from __future__ import annotations

import enum

from lakerunner.model.labels import METRIC_NAME
from lakerunner.query.promql.ast import (
    Aggregate,
    Binary,
    Call,
    Expr,
    Number,
    Paren,
    Unary,
    VectorSelector,
    unwrapped,
    walk,
)
from lakerunner.query.vectors.operators import COMPARISONS

#: Their choice depends on the order of all series, including those of other steps.
_CHOOSING = frozenset({"limitk", "limit_ratio"})
#: They warn that ranges are always sorted by labels; a group of one step would not.
_SORTING = frozenset({"sort", "sort_desc", "sort_by_label", "sort_by_label_desc"})
#: Relabelled series must not collide anywhere in the range.
_RELABELLING = frozenset({"label_replace", "label_join", "info"})
#: Aggregations that return series unchanged.
_SELECTING = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_KEEPING = frozenset({"sort", "sort_desc", "sort_by_label", "sort_by_label_desc", "last_over_time", "first_over_time"})
_NAMELESS = frozenset({"vector", "absent", "absent_over_time", "scalar", "time", "pi"})


class _Name(enum.Enum):
    KEPT = enum.auto()
    DROPPED = enum.auto()
    #: There is none to keep or drop.
    NONE = enum.auto()
    UNKNOWN = enum.auto()


def is_splittable(expr: Expr) -> bool:
    """Whether the value at a step never depends on another step."""
    for node in walk(expr):
        if isinstance(node, Aggregate) and (node.op in _CHOOSING or _warns_once(node)):
            return False
        if isinstance(node, Call) and node.name in _RELABELLING | _SORTING:
            return False
        if isinstance(node, Binary) and node.op == "or" and not _settled(_name(node.left), _name(node.right)):
            return False
    return True


def _warns_once(node: Aggregate) -> bool:
    """A parameter that varies is warned about once, with its extremes over the whole range."""
    return node.op == "quantile" and node.param is not None and not isinstance(unwrapped(node.param), Number)


def _settled(left: _Name, right: _Name) -> bool:
    return _Name.NONE in (left, right) or (left is right and left is not _Name.UNKNOWN)


def _name(expr: Expr) -> _Name:
    """What happens to the metric name. The left spine is walked in a loop: chains of operators are long."""
    while True:
        match expr:
            case Paren(expr=inner):
                expr = inner
            case Aggregate(op=op, expr=inner) if op in _SELECTING:
                expr = inner
            case Binary(op="and" | "unless", left=left):
                expr = left
            case Binary(op=op, left=left, right=Number(), return_bool=False) if op in COMPARISONS:
                expr = left
            case _:
                return _own_name(expr)


def _own_name(expr: Expr) -> _Name:
    match expr:
        case VectorSelector():
            return _Name.KEPT
        case Number():
            return _Name.NONE
        case Unary(op="-"):
            return _Name.DROPPED
        case Aggregate(grouping=grouping, without=without):
            return _Name.NONE if without or METRIC_NAME not in grouping else _Name.UNKNOWN
        case Call(name=name):
            if name in _NAMELESS:
                return _Name.NONE
            return _Name.UNKNOWN if name in _KEEPING or name in _RELABELLING else _Name.DROPPED
        case _:
            return _Name.UNKNOWN
