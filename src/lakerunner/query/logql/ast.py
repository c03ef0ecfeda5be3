"""The syntax tree of a LogQL query: frozen nodes with their positions in the text."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from lakerunner.query.series.matchers import Matcher
from lakerunner.query.vectors.matching import Matching


def _position() -> int:
    """Positions are ignored in comparisons: texts that differ only in spacing have equal trees."""
    return field(compare=False, default=0)


class LineOp(enum.StrEnum):
    CONTAINS = "|="
    LACKS = "!="
    MATCHES = "|~"
    MATCHES_NOT = "!~"
    FITS = "|>"
    FITS_NOT = "!>"


class CompareOp(enum.StrEnum):
    EQUAL = "=="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


# -- stages of a pipeline ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LineText:
    """What a line filter looks for: a text, a regular expression or a pattern, or the addresses of `ip("…")`."""

    value: str
    ip: bool = False


@dataclass(frozen=True, slots=True)
class LineFilter:
    """`|= "a" or "b"`: one of the texts is found. For the negated operators, none of them is."""

    op: LineOp
    texts: tuple[LineText, ...]
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Extraction:
    """`label="expression"` of `json` and `logfmt`."""

    label: str
    expression: str
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Json:
    """Without extractions, every field becomes a label."""

    extractions: tuple[Extraction, ...] = ()
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Logfmt:
    extractions: tuple[Extraction, ...] = ()
    strict: bool = False
    keep_empty: bool = False
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Regexp:
    pattern: str
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class PatternParser:
    pattern: str
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Unpack:
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class StringFilter:
    matcher: Matcher
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class NumberFilter:
    label: str
    op: CompareOp
    value: float
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class DurationFilter:
    label: str
    op: CompareOp
    value_ns: int
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class BytesFilter:
    label: str
    op: CompareOp
    value_bytes: int
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class IpFilter:
    label: str
    #: EQUAL or NOT_EQUAL.
    op: CompareOp
    addresses: str
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class AndFilter:
    """`a and b`, `a, b` and `a b` mean the same."""

    left: Condition
    right: Condition
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class OrFilter:
    left: Condition
    right: Condition
    start: int = _position()
    end: int = _position()


Condition: TypeAlias = StringFilter | NumberFilter | DurationFilter | BytesFilter | IpFilter | AndFilter | OrFilter


@dataclass(frozen=True, slots=True)
class LabelFilter:
    condition: Condition
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class LineFormat:
    template: str
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Assignment:
    """`label=other` renames (`value` is the other's name); `label="template"` sets."""

    label: str
    value: str
    is_template: bool
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class LabelFormat:
    assignments: tuple[Assignment, ...]
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Decolorize:
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class LabelChoice:
    """A label of `drop` or `keep`: by name alone, or only where its value matches."""

    label: str
    matcher: Matcher | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    choices: tuple[LabelChoice, ...]
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Keep:
    choices: tuple[LabelChoice, ...]
    start: int = _position()
    end: int = _position()


Stage: TypeAlias = (
    LineFilter
    | Json
    | Logfmt
    | Regexp
    | PatternParser
    | Unpack
    | LabelFilter
    | LineFormat
    | LabelFormat
    | Decolorize
    | Drop
    | Keep
)


@dataclass(frozen=True, slots=True)
class LogSelector:
    """`{…} | stages`: a log query, or what a range aggregation reads."""

    matchers: tuple[Matcher, ...]
    stages: tuple[Stage, ...] = ()
    start: int = _position()
    end: int = _position()


# -- metric queries --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grouping:
    labels: tuple[str, ...] = ()
    without: bool = False


@dataclass(frozen=True, slots=True)
class Unwrap:
    """`| unwrap label` or `| unwrap duration(label)`; `filters` follow it and see the label no more."""

    label: str
    #: "", "duration", "duration_seconds" or "bytes".
    conversion: str = ""
    filters: tuple[LabelFilter, ...] = ()
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class LogRange:
    selector: LogSelector
    range_ns: int
    offset_ns: int = 0
    unwrap: Unwrap | None = None
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class RangeAggregate:
    op: str
    range: LogRange
    #: The quantile of `quantile_over_time`.
    param: float | None = None
    grouping: Grouping | None = None
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class VectorAggregate:
    op: str
    expr: MetricExpr
    #: k of `topk` and its like.
    param: int | None = None
    grouping: Grouping | None = None
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Binary:
    op: str
    left: MetricExpr
    right: MetricExpr
    matching: Matching = field(default_factory=Matching)
    return_bool: bool = False
    start: int = _position()
    end: int = _position()
    #: The position of the operator itself.
    op_start: int = _position()


@dataclass(frozen=True, slots=True)
class Number:
    value: float
    start: int = _position()
    end: int = _position()

    def __eq__(self, other: object) -> bool:
        # By text, because NaN does not equal itself.
        return isinstance(other, Number) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class VectorLiteral:
    """`vector(1)`."""

    value: float
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class LabelReplace:
    expr: MetricExpr
    target: str
    replacement: str
    source: str
    pattern: str
    start: int = _position()
    end: int = _position()


@dataclass(frozen=True, slots=True)
class Given:
    """A part of the query whose value is known already: the number of a block that the evaluator is given."""

    number: int
    start: int = _position()
    end: int = _position()


MetricExpr: TypeAlias = RangeAggregate | VectorAggregate | Binary | Number | VectorLiteral | LabelReplace | Given
Expr: TypeAlias = LogSelector | MetricExpr
