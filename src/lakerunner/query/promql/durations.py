"""Durations: how they are written, and the small expressions that may stand for one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TypeAlias

from lakerunner.model.errors import BadInput

_UNITS_MS = (
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
)
_PIECE = re.compile(r"(\d+)(ms|[ywdhms])")
#: Prometheus keeps durations as int64 nanoseconds.
_MAX_MS = (1 << 63) // 1_000_000


def parse_duration_ms(text: str) -> int:
    """Milliseconds of a duration literal.

    >>> parse_duration_ms("1h30m"), parse_duration_ms("10s53ms")
    (5400000, 10053)
    """
    units = dict(_UNITS_MS)
    total = sum(int(number) * units[unit] for number, unit in _PIECE.findall(text))
    if total > _MAX_MS:
        raise BadInput(f"cannot read duration {text!r}: it is out of range")
    return total


def format_duration_ms(duration_ms: int) -> str:
    """The shortest literal of a whole number of milliseconds.

    >>> format_duration_ms(5_400_000), format_duration_ms(0)
    ('1h30m', '0s')
    """
    if duration_ms == 0:
        return "0s"
    out, rest = [], duration_ms
    for unit, size in _UNITS_MS:
        # Years and weeks only where nothing remains: 8d reads better than 1w1d.
        if unit in ("y", "w") and rest % size:
            continue
        count, rest = divmod(rest, size)
        if count:
            out.append(f"{count}{unit}")
    return "".join(out)


@dataclass(frozen=True, slots=True)
class DurationNumber:
    """A literal: seconds, written as a number or with units."""

    seconds: float
    with_units: bool
    start: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class DurationOp:
    """Arithmetic; with one operand, a sign."""

    op: str
    left: Duration | None
    right: Duration
    start: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class DurationCall:
    """`step()`, `range()`, `min_of(a, b)`, `max_of(a, b)`."""

    name: str
    args: tuple[Duration, ...]
    start: int = field(compare=False, default=0)


@dataclass(frozen=True, slots=True)
class DurationParen:
    inner: Duration
    start: int = field(compare=False, default=0)


Duration: TypeAlias = DurationNumber | DurationOp | DurationCall | DurationParen


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The query's own times, which expressions may refer to."""

    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def range_ms(self) -> int:
        return self.end_ms - self.start_ms


def duration_ms(duration: Duration, query: QueryContext) -> int:
    """The duration in whole milliseconds, as the query's times make it."""
    seconds = _seconds(duration, query)
    if math.isnan(seconds) or abs(seconds) * 1000 > _MAX_MS:
        raise BadInput(f"cannot use {print_duration(duration)} as a duration: it is out of range")
    return round(seconds * 1000)


def positive_duration_ms(duration: Duration, query: QueryContext) -> int:
    """As `duration_ms`, for ranges and subquery steps."""
    value_ms = duration_ms(duration, query)
    if value_ms <= 0:
        raise BadInput(f"cannot use {print_duration(duration)} as a range or step: duration must be greater than 0")
    return value_ms


def _seconds(duration: Duration, query: QueryContext) -> float:
    match duration:
        case DurationNumber(seconds=seconds):
            return seconds
        case DurationParen(inner=inner):
            return _seconds(inner, query)
        case DurationCall(name="step"):
            return query.step_ms / 1000
        case DurationCall(name="range"):
            return query.range_ms / 1000
        case DurationCall(name=name, args=args):
            values = [_seconds(arg, query) for arg in args]
            return min(values) if name == "min_of" else max(values)
        case DurationOp(op=op, left=None, right=right):
            value = _seconds(right, query)
            return -value if op == "-" else value
        case DurationOp(op=op, left=left, right=right):
            assert left is not None
            return _apply(op, _seconds(left, query), _seconds(right, query))


def _apply(op: str, left: float, right: float) -> float:
    if op in "/%" and right == 0:
        raise BadInput(f"cannot compute a duration: {'division' if op == '/' else 'modulo'} by zero")
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "%":
            return math.fmod(left, right)
        case _:
            try:
                return math.pow(left, right)
            except (OverflowError, ValueError):
                return math.nan


def print_duration(duration: Duration) -> str:
    match duration:
        case DurationNumber(seconds=seconds, with_units=True):
            return format_duration_ms(round(seconds * 1000))
        case DurationNumber(seconds=seconds):
            return f"{seconds:.0f}" if seconds == int(seconds) and abs(seconds) < 1e15 else repr(seconds)
        case DurationParen(inner=inner):
            return f"({print_duration(inner)})"
        case DurationCall(name=name, args=args):
            return f"{name}({', '.join(map(print_duration, args))})"
        case DurationOp(op=op, left=None, right=right):
            return f"{op}{print_duration(right)}"
        case DurationOp(op=op, left=left, right=right):
            assert left is not None
            return f"{print_duration(left)} {op} {print_duration(right)}"
