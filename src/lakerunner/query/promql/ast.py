"""The tree of a PromQL expression: frozen nodes, each knowing where in the text it stands."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from lakerunner.query.promql.durations import Duration
from lakerunner.query.series.matchers import Matcher


class ValueType(enum.StrEnum):
    SCALAR = "scalar"
    STRING = "string"
    VECTOR = "instant vector"
    MATRIX = "range vector"


class AtEdge(enum.StrEnum):
    """`@ start()` and `@ end()`."""

    START = "start"
    END = "end"


class Cardinality(enum.Enum):
    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"


def _position() -> int:
    """Positions do not count in comparisons: two texts of the same meaning are the same tree."""
    return field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    #: Written with units, like `5m` for 300.
    with_units: bool = False
    start: int = _position()
    end: int = _position()

    def __eq__(self, other: object) -> bool:
        # NaN is the same literal as NaN.
        return isinstance(other, Number) and (repr(self.value), self.with_units) == (
            repr(other.value),
            other.with_units,
        )

    def __hash__(self) -> int:
        return hash((repr(self.value), self.with_units))


@dataclass(frozen=True, slots=True)
class String:
    value: str
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class VectorSelector:
    """`name` is what stands before the braces; it is also among the matchers."""

    name: str
    matchers: tuple[Matcher, ...]
    offset: Duration | None = None
    #: Milliseconds, or an edge of the query.
    at: int | AtEdge | None = None
    anchored: bool = False
    smoothed: bool = False
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class MatrixSelector:
    vector: VectorSelector
    range: Duration
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Subquery:
    expr: Expr
    range: Duration
    #: Absent: the engine's default step.
    step: Duration | None = None
    offset: Duration | None = None
    at: int | AtEdge | None = None
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    args: tuple[Expr, ...]
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Aggregate:
    op: str
    expr: Expr
    param: Expr | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Matching:
    """How the series of two sides find each other."""

    cardinality: Cardinality = Cardinality.ONE_TO_ONE
    #: True for `on`, False for `ignoring` or nothing.
    on: bool = False
    labels: tuple[str, ...] = ()
    #: The labels that `group_left` or `group_right` copies from the "one" side.
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


@dataclass(frozen=True, slots=True)
class Binary:
    op: str
    left: Expr
    right: Expr
    matching: Matching = Matching()
    return_bool: bool = False
    start: int = _position()
    end: int = _position()
    #: Where the operator itself stands.
    op_start: int = _position()


@dataclass(frozen=True, slots=True)
class Unary:
    op: str
    expr: Expr
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Paren:
    expr: Expr
    start: int = _position()
    end: int = _position()


Expr: TypeAlias = (
    Number | String | VectorSelector | MatrixSelector | Subquery | Call | Aggregate | Binary | Unary | Paren
)

SET_OPERATORS = frozenset({"and", "or", "unless"})
COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
TRIM_OPERATORS = frozenset({"</", ">/"})
#: Operators whose result is another quantity: the metric name no longer fits it.
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "^", "atan2"})


def unwrapped(expr: Expr) -> Expr:
    """The expression without the parentheses around it."""
    while isinstance(expr, Paren):
        expr = expr.expr
    return expr


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions, in the order of the text."""
    match expr:
        case Paren(expr=inner) | Unary(expr=inner) | Subquery(expr=inner):
            return (inner,)
        case MatrixSelector(vector=vector):
            return (vector,)
        case Binary(left=left, right=right):
            return (left, right)
        case Call(args=args):
            return args
        case Aggregate(expr=inner, param=param):
            return (inner,) if param is None else (param, inner)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all within it, in no order. On a stack of its own: chains of operators are deep."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending += children(node)
