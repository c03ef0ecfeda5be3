"""The tree of a TraceQL query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

#: Types of values. Durations are nanoseconds; statuses and kinds are their names.
STRING, INT, FLOAT, BOOL, DURATION, STATUS, KIND, NIL = (
    "string",
    "int",
    "float",
    "bool",
    "duration",
    "status",
    "kind",
    "nil",
)
STATUSES = ("unset", "ok", "error")
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
#: Scopes of attributes. The empty one looks at the span, then at the resource.
SCOPES = ("", "span", "resource", "event", "link", "instrumentation")

COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "=~", "!~")
ARITHMETIC = ("+", "-", "*", "/", "%", "^")
LOGIC = ("&&", "||")
RELATIONS = (">", ">>", "<", "<<", "~")
STRUCTURAL = (*RELATIONS, *(f"!{op}" for op in RELATIONS), *(f"&{op}" for op in RELATIONS))


@dataclass(frozen=True, slots=True)
class Literal:
    type: str
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Attribute:
    scope: str
    name: str
    #: Of the parent span.
    parent: bool = False


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A property that every span, trace, event, link or scope has. The name is as in `fields.INTRINSICS`."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary:
    op: str
    operand: FieldExpr


@dataclass(frozen=True, slots=True)
class Binary:
    op: str
    left: FieldExpr
    right: FieldExpr


FieldExpr: TypeAlias = Literal | Attribute | Intrinsic | Unary | Binary
Field: TypeAlias = Attribute | Intrinsic


@dataclass(frozen=True, slots=True)
class Filter:
    """`{ … }`; None accepts every span."""

    condition: FieldExpr | None


@dataclass(frozen=True, slots=True)
class SpansetOp:
    op: str
    left: Spanset
    right: Spanset


@dataclass(frozen=True, slots=True)
class Aggregate:
    function: str
    argument: FieldExpr | None


@dataclass(frozen=True, slots=True)
class ScalarOp:
    op: str
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True)
class ScalarFilter:
    op: str
    left: Scalar
    right: Scalar


@dataclass(frozen=True, slots=True)
class GroupBy:
    by: FieldExpr


@dataclass(frozen=True, slots=True)
class Coalesce:
    pass


@dataclass(frozen=True, slots=True)
class Select:
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class ScalarPipeline:
    """`({ … } | count())`: the value of a pipeline's last aggregate."""

    stages: tuple[Stage, ...]
    aggregate: Aggregate


Spanset: TypeAlias = Filter | SpansetOp | Pipeline
Scalar: TypeAlias = Aggregate | ScalarOp | Literal | ScalarPipeline
Stage: TypeAlias = Spanset | ScalarFilter | GroupBy | Coalesce | Select


@dataclass(frozen=True, slots=True)
class MetricAggregate:
    function: str
    argument: Field | None
    by: tuple[Field, ...]
    #: Of quantile_over_time.
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Compare:
    selection: Filter
    top: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """topk or bottomk."""

    function: str
    count: int


@dataclass(frozen=True, slots=True)
class ValueFilter:
    op: str
    value: float


SecondStage: TypeAlias = Ranked | ValueFilter


@dataclass(frozen=True, slots=True)
class Metric:
    """A pipeline whose spans are counted or aggregated over time."""

    pipeline: Pipeline
    aggregate: MetricAggregate | Compare
    then: tuple[SecondStage, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricNumber:
    value: float


@dataclass(frozen=True, slots=True)
class MetricOp:
    op: str
    left: MetricExpr
    right: MetricExpr
    then: tuple[SecondStage, ...] = ()


MetricExpr: TypeAlias = Metric | MetricOp | MetricNumber


@dataclass(frozen=True, slots=True)
class Hint:
    name: str
    value: Literal


@dataclass(frozen=True, slots=True)
class Query:
    root: Pipeline | MetricExpr
    hints: tuple[Hint, ...] = ()

    def hint(self, name: str) -> Literal | None:
        return next((hint.value for hint in self.hints if hint.name == name), None)
