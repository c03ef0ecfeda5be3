"""Comparisons, and arithmetic of integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Ints
from lakerunner.query.logql.stages.template.column_calls.signature import Vectorised
from lakerunner.query.logql.stages.template.columns import Column, Constant, Numbers, Texts, plain_texts

#: Texts that are integers for Arrow and for Go alike.
_PLAIN_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"


def _compare(on_arrow: Callable[..., pa.Array], on_numpy: Callable[..., object]) -> Vectorised:
    def call(*columns: Column) -> Column | None:
        if len(columns) != 2:
            return None
        texts = [_comparable_text(column) for column in columns]
        if texts[0] is not None and texts[1] is not None:
            return Numbers(on_arrow(*texts).to_numpy(zero_copy_only=False), "bool")
        numbers = [_comparable_number(column) for column in columns]
        if numbers[0] is None or numbers[1] is None or numbers[0][0] != numbers[1][0]:
            return None
        return Numbers(np.asarray(on_numpy(numbers[0][1], numbers[1][1])), "bool")

    return call


def _comparable_text(column: Column) -> pa.Array | str | None:
    if isinstance(column, Texts):
        return plain_texts(column)
    return column.value if isinstance(column, Constant) and isinstance(column.value, str) else None


def _comparable_number(column: Column) -> tuple[str, object] | None:
    """What kind a number is compared as, and the number."""
    if isinstance(column, Numbers):
        kind = {"int": "int", "int64": "int", "float64": "float"}.get(column.go_type)
        return None if kind is None else (kind, column.array)
    if isinstance(column, Constant) and type(column.value) in (int, float):
        return type(column.value).__name__, column.value
    return None


def _not(column: Column) -> Column | None:
    if isinstance(column, Numbers) and column.go_type == "bool":
        return Numbers(~column.array.astype(np.bool_), "bool")
    return None


def _integers(column: Column) -> Ints | int | None:
    """The numbers that `add` and its like take a column for."""
    if isinstance(column, Constant):
        return int(column.value) if type(column.value) is int else None
    if isinstance(column, Numbers):
        return column.array.astype(np.int64) if column.go_type in ("int", "int64") else None
    if not isinstance(column, Texts):
        return None
    array = column.array
    values = array.dictionary if pa.types.is_dictionary(array.type) else array
    if pc.all(pc.match_substring_regex(values, _PLAIN_INTEGER)).as_py() is False:
        return None
    numbers: Ints = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers[array.indices.to_numpy(zero_copy_only=False)] if values is not array else numbers


def _arithmetic(combine: Callable[[Ints, Ints], Ints]) -> Vectorised:
    """A function of integers, which wrap around as numpy's do."""

    def call(*columns: Column) -> Column | None:
        numbers = [_integers(column) for column in columns]
        if any(number is None for number in numbers):
            return None
        result = np.asarray(numbers[0], np.int64)
        with np.errstate(over="ignore"):
            for number in numbers[1:]:
                result = combine(result, np.asarray(number, np.int64))
        return Numbers(result, "int64")

    return call


def _to_int(column: Column) -> Column | None:
    numbers = _integers(column)
    return Numbers(numbers, "int") if isinstance(numbers, np.ndarray) else None


VECTORISED: dict[str, Vectorised] = {
    "eq": _compare(pc.equal, np.equal),
    "ne": _compare(pc.not_equal, np.not_equal),
    "lt": _compare(pc.less, np.less),
    "le": _compare(pc.less_equal, np.less_equal),
    # By negation, as Go does: NaN is greater than everything.
    "gt": _compare(pc.greater, lambda a, b: ~np.less_equal(a, b)),
    "ge": _compare(pc.greater_equal, lambda a, b: ~np.less(a, b)),
    "not": _not,
    "add": _arithmetic(np.add),
    "sub": _arithmetic(np.subtract),
    "mul": _arithmetic(np.multiply),
    "max": _arithmetic(np.maximum),
    "min": _arithmetic(np.minimum),
    "int": _to_int,
}
