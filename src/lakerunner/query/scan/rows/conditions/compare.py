"""Compares an array of any type with a literal, exactly and by the rules of `predicate`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import as_text
from lakerunner.query.scan.rows.conditions.predicate import NUMBER_TEXT, Bool, Literal, Op, Text

Mask = npt.NDArray[np.bool_]

#: Whole numbers of up to 18 digits fit int64; longer ones and fractions compare as doubles.
_SHORT_INT_TEXT = r"^[+-]?[0-9]{1,18}$"
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
#: Operators that give the same result with a neighbour below the number (first) or above it (second).
_BELOW, _ABOVE = (Op.LESS_EQUAL, Op.LESS), (Op.GREATER, Op.GREATER_EQUAL)
_KERNELS = {
    Op.EQUAL: pc.equal,
    Op.LESS: pc.less,
    Op.LESS_EQUAL: pc.less_equal,
    Op.GREATER: pc.greater,
    Op.GREATER_EQUAL: pc.greater_equal,
}


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind))


def has_text(kind: pa.DataType) -> bool:
    """Whether values of the type have a text. Lists, maps and structs do not."""
    return bool(pa.types.is_string(kind) or pa.types.is_boolean(kind) or is_number(kind))


def compare(array: pa.Array, op: Op, value: Literal) -> Mask:
    """A mask of the values for which the comparison holds. It never holds for null."""
    if not has_text(array.type):
        return np.zeros(len(array), np.bool_)
    if isinstance(value, Text):
        return mask_of(_KERNELS[op](as_text(array), pa.scalar(value.value, pa.string())))
    if isinstance(value, Bool):
        return _compare_bool(array, op, value.value)
    return _compare_number(array, op, value.value)


def mask_of(array: pa.Array) -> Mask:
    filled: Mask = (pc.fill_null(array, False) if array.null_count else array).to_numpy(zero_copy_only=False)
    return filled


def _compare_bool(array: pa.Array, op: Op, value: bool) -> Mask:
    if op is Op.EQUAL and pa.types.is_boolean(array.type):
        return mask_of(pc.equal(array, value))
    if op is Op.EQUAL and pa.types.is_string(array.type):
        return mask_of(pc.equal(array, "true" if value else "false"))
    return np.zeros(len(array), np.bool_)


def _compare_number(array: pa.Array, op: Op, value: int | float) -> Mask:
    kind = array.type
    if pa.types.is_boolean(kind):
        return np.zeros(len(array), np.bool_)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("ns", kind.tz)) if kind.unit != "ns" else array
        return _compare_ints(array.cast(pa.int64()), op, value)
    if pa.types.is_integer(kind):
        return _compare_ints(array.cast(pa.int64()), op, value)
    if pa.types.is_floating(kind):
        return _compare_floats(array.cast(pa.float64()), op, value)
    return _compare_texts(array, op, value)


def _compare_texts(array: pa.Array, op: Op, value: int | float) -> Mask:
    found = np.zeros(len(array), np.bool_)
    short = mask_of(pc.match_substring_regex(array, _SHORT_INT_TEXT))
    other = mask_of(pc.match_substring_regex(array, NUMBER_TEXT)) & ~short
    if short.any():
        # Arrow's integer parser does not accept a plus sign.
        ints = pc.replace_substring_regex(array.filter(pa.array(short)), r"^\+", "").cast(pa.int64())
        found[short] = _compare_ints(ints, op, value)
    if other.any():
        floats = pc.replace_substring_regex(array.filter(pa.array(other)), r"^\+", "").cast(pa.float64())
        found[other] = _compare_floats(floats, op, value)
    return found


def _compare_ints(array: pa.Array, op: Op, value: int | float) -> Mask:
    """Compare without rounding: a fraction is replaced by the next whole number that gives the same result."""
    if isinstance(value, float):
        if math.isnan(value):
            return np.zeros(len(array), np.bool_)
        if math.isinf(value):
            return _all_on_one_side(array, op, above=value > 0)
        if not value.is_integer():
            if op is Op.EQUAL:
                return np.zeros(len(array), np.bool_)
            below = op in (Op.LESS, Op.LESS_EQUAL)
            op, value = (Op.LESS_EQUAL, math.floor(value)) if below else (Op.GREATER_EQUAL, math.ceil(value))
        value = int(value)
    if not _INT64_MIN <= value <= _INT64_MAX:
        return _all_on_one_side(array, op, above=value > 0)
    return mask_of(_KERNELS[op](array, pa.scalar(value, pa.int64())))


def _all_on_one_side(array: pa.Array, op: Op, *, above: bool) -> Mask:
    """Compare with a number above, or below, every int64."""
    if op in ((Op.LESS, Op.LESS_EQUAL) if above else (Op.GREATER, Op.GREATER_EQUAL)):
        return mask_of(array.is_valid())
    return np.zeros(len(array), np.bool_)


def _compare_floats(array: pa.Array, op: Op, value: int | float) -> Mask:
    """Compare exactly. A whole number that no double equals is replaced by its neighbour and a suitable operator."""
    near = _float(value)
    if isinstance(value, int) and (math.isinf(near) or int(near) != value):
        if op is Op.EQUAL:
            return np.zeros(len(array), np.bool_)
        below = op in (Op.LESS, Op.LESS_EQUAL)
        above = near > value
        op = _BELOW[above] if below else _ABOVE[above]
    return mask_of(_KERNELS[op](array, pa.scalar(near, pa.float64())))


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
