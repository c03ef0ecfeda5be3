"""Operators of TraceQL on columns: comparisons, patterns and arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import BadInput
from lakerunner.query.scan.rows.conditions.predicate import Column, Matches
from lakerunner.query.traceql.values import (
    ARRAY,
    BOOL,
    DURATION,
    FLOAT,
    INT,
    KIND,
    NIL,
    STATUS,
    STRING,
    Mask,
    Texts,
    Values,
    per_text,
)

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(op: str, left: Values, right: Values, size: int) -> Mask:
    """Which rows satisfy the comparison. Values of types that do not compare, and nil, satisfy none.

    An array satisfies it when one of its elements does; `!=` when no element is equal.
    """
    if (left.kind == ARRAY).any() or (right.kind == ARRAY).any():
        return _with_arrays(op, left, right, size)
    judge = _COMPARE[op]
    out = np.zeros(size, np.bool_)
    numbers = left.is_number & right.is_number
    if numbers.any():
        both_whole = np.isin(left.kind, (INT, DURATION)) & np.isin(right.kind, (INT, DURATION))
        found = np.where(both_whole, judge(left.whole, right.whole), judge(left.number, right.number))
        out |= numbers & found
    for kind in (BOOL, STATUS, KIND):
        same = (left.kind == kind) & (right.kind == kind)
        if same.any():
            out |= same & judge(left.number, right.number)
    if (left.kind == STRING).any() and (right.kind == STRING).any():
        out |= _texts_compared(op, left, right)
    return out


def _texts_compared(op: str, left: Values, right: Values) -> Mask:
    judge = _COMPARE[op]
    if len(right) == 1:
        text = right.texts[right.code[0]]
        return per_text(left, lambda texts: _each(judge, texts, text))
    if len(left) == 1:
        return _texts_compared(_MIRRORED[op], right, left)
    both = (left.kind == STRING) & (right.kind == STRING)
    rows = np.flatnonzero(both)
    a, b = left.texts[left.code[rows]], right.texts[right.code[rows]]
    both[rows] = judge(a, b).astype(np.bool_)
    found: Mask = both
    return found


def _each(judge: Callable[[Any, Any], Any], texts: Texts, other: str) -> Mask:
    return np.fromiter((judge(text, other) for text in texts), np.bool_, len(texts))


def _with_arrays(op: str, left: Values, right: Values, size: int) -> Mask:
    if not (left.kind == ARRAY).any():
        left, right, op = right, left, _MIRRORED[op]
    left = left.spread(size)
    plain = left.kind != ARRAY
    out = compared(op, left.only(plain), right if len(right) == 1 else right.only(right.kind != ARRAY), size)
    rows, elements = left.elements()
    others = right if len(right) == 1 else right.take(rows)
    if (others.kind == ARRAY).any():
        return out
    wanted = "=" if op == "!=" else op
    holds = compared(wanted, elements, others, len(rows))
    any_element = np.bincount(rows[holds], minlength=size) > 0
    if op != "!=":
        return out | any_element
    comparable = compared("=", elements, others, len(rows)) | compared("!=", elements, others, len(rows))
    return out | ((np.bincount(rows[comparable], minlength=size) > 0) & ~any_element)


def matched(op: str, values: Values, pattern: str) -> Mask:
    """`=~` and `!~`: texts that match the whole pattern, or do not."""
    expression = Matches(Column(""), pattern).expression

    def judge(texts: Texts) -> Mask:
        found = pc.match_substring_regex(pa.array(texts, pa.string()), expression)
        mask: Mask = found.to_numpy(zero_copy_only=False).astype(np.bool_)
        return mask if op == "=~" else ~mask

    if (values.kind == ARRAY).any():
        rows, elements = values.elements()
        positive = matched("=~", elements, pattern)
        found = np.bincount(rows[positive], minlength=len(values)) > 0
        plain = per_text(values, judge)
        texts = np.bincount(rows[elements.kind == STRING], minlength=len(values)) > 0
        return plain | (found if op == "=~" else texts & ~found)
    return per_text(values, judge)


def calculated(op: str, left: Values, right: Values, size: int) -> Values:
    """Arithmetic; nil where an operand is no number. Whole numbers stay whole, and their division cuts."""
    numbers = np.broadcast_to(left.is_number & right.is_number, size)
    whole = np.broadcast_to(np.isin(left.kind, (INT, DURATION)) & np.isin(right.kind, (INT, DURATION)), size)
    is_duration = np.broadcast_to((left.kind == DURATION) | (right.kind == DURATION), size)
    if op in "/%" and bool((numbers & whole & (np.broadcast_to(right.whole, size) == 0)).any()):
        raise BadInput("cannot divide a whole number by zero", hint="compare with a number above 0 first")
    with np.errstate(all="ignore"):
        exact = np.broadcast_to(_whole(op, left, right), size)
        real = np.broadcast_to(_real(op, left, right), size)
    kinds = np.where(is_duration, DURATION, np.where(whole, INT, FLOAT))
    kinds = np.where(numbers, kinds, NIL).astype(np.int8)
    inexact = is_duration & ~whole
    out_whole = np.where(inexact, np.nan_to_num(real), 0).astype(np.int64)
    out_whole = np.where(whole, exact, out_whole)
    out_number = np.where(whole, exact.astype(np.float64), real)
    return Values(kinds, out_number, out_whole, np.zeros(size, np.int64))


def _whole(op: str, left: Values, right: Values) -> Any:
    a, b = left.whole, right.whole
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            divisor = np.where(b == 0, 1, b)
            quotient = np.abs(a) // np.abs(divisor)
            return np.where((a < 0) != (divisor < 0), -quotient, quotient)
        case "%":
            return np.fmod(a, np.where(b == 0, 1, b))
    powered = np.clip(np.nan_to_num(np.power(left.number, right.number)), -(2.0**63), 2.0**63 - 1025)
    return powered.astype(np.int64)


def _real(op: str, left: Values, right: Values) -> Any:
    a, b = left.number, right.number
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case "%":
            return np.fmod(a, b)
    return np.power(a, b)


def negated(values: Values) -> Values:
    kinds = np.where(values.is_number, values.kind, NIL).astype(np.int8)
    return Values(kinds, -values.number, -values.whole, values.code, values.texts)
