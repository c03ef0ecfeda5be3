"""The syntax tree of a PromQL expression: frozen nodes with their positions in the text."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from lakerunner.query.promql.durations import Duration
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.vectors.matching import Matching


class ValueType(enum.StrEnum):
    SCALAR = "scalar"
    STRING = "string"
    VECTOR = "instant vector"
    MATRIX = "range vector"


class AtEdge(enum.StrEnum):
    """`@ start()` and `@ end()`."""

    START = "start"
    END = "end"


def _position() -> int:
    """Positions are ignored in comparisons: texts that differ only in spacing have equal trees."""
    return field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    #: Written with units, like `5m` for 300.
    with_units: bool = False
    start: int = _position()
    end: int = _position()

    def __eq__(self, other: object) -> bool:
        # By text, because NaN does not equal itself.
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
    """`name` is the metric name before the braces, which is also one of the matchers."""

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
    #: None: the engine's default step.
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
class Binary:
    op: str
    left: Expr
    right: Expr
    matching: Matching = field(default_factory=Matching)
    return_bool: bool = False
    start: int = _position()
    end: int = _position()
    #: The position of the operator itself.
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


def unwrapped(expr: Expr) -> Expr:
    """The expression without the parentheses around it."""
    while isinstance(expr, Paren):
        expr = expr.expr
    return expr


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions, in text order."""
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
    """The expression and all its descendants, in no order. Not recursive: chains of operators can be deep."""
    pending = [expr]
    while pending:
        node = pending.pop()
        yield node
        pending += children(node)
