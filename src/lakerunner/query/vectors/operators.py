"""Binary operators on values: on whole arrays of floats, and on single histograms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lakerunner.query.series.block import Bools
from lakerunner.query.series.histograms.histogram import Floats, Histogram, ResetHint
from lakerunner.query.series.histograms.math import IncompatibleSchemas, add, subtract
from lakerunner.query.series.histograms.trim import trim
from lakerunner.query.vectors.annotations import Annotations

_COMPARING: dict[str, Callable[[Floats, Floats], Bools]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}
_COMPUTING: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISONS = frozenset(_COMPARING)
#: Operators whose result is another quantity, which the metric name no longer describes.
ARITHMETIC = frozenset(_COMPUTING)
SET_OPERATORS = frozenset({"and", "or", "unless"})
#: Remove the observations of a histogram above (`</`) or below (`>/`) a value.
TRIM_OPERATORS = frozenset({"</", ">/"})


def arithmetic(op: str, left: Floats, right: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return _COMPUTING[op](left, right)


def compared(op: str, left: Floats, right: Floats) -> Bools:
    return _COMPARING[op](left, right)


def histogram_operation(
    op: str, left: float | Histogram, right: float | Histogram, notes: Annotations, position: int
) -> tuple[Histogram, bool] | None:
    """The result, and whether a comparison holds. None, with an annotation, if the types do not fit the operator.

    At least one side is a histogram.
    """
    match left, right:
        case Histogram(), Histogram():
            if op in ("+", "-"):
                return _summed(op, left, right, notes, position)
            if op in ("==", "!="):
                return left, left.equals(right) == (op == "==")
        case Histogram(), float():
            if op == "*":
                return left.scaled(right).compact(), True
            if op == "/":
                return left.divided(right).compact(), True
            if op in TRIM_OPERATORS:
                return trim(left, right, upper=op == "</"), True
        case float(), Histogram():
            if op == "*":
                return right.scaled(left).compact(), True
    notes.incompatible_types(_kind(left), op, _kind(right), position)
    return None


def _summed(
    op: str, left: Histogram, right: Histogram, notes: Annotations, position: int
) -> tuple[Histogram, bool] | None:
    operation = "addition" if op == "+" else "subtraction"
    try:
        result = add(left, right) if op == "+" else subtract(left, right)
    except IncompatibleSchemas:
        notes.incompatible_layout(op, position)
        return None
    if result.hint_collision:
        # As in Prometheus, the warning replaces the sample.
        notes.hint_collision(operation, position)
        return None
    if result.bounds_reconciled:
        notes.bounds_reconciled(operation, position)
    value = result.value.compact()
    return (value if op == "+" else value.with_hint(ResetHint.GAUGE)), True


def _kind(value: float | Histogram) -> str:
    return "float" if isinstance(value, float) else "histogram"
