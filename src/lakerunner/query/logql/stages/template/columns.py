"""Values of a template for many entries at once.

A value that is equal for all entries is a Constant. Texts and numbers are Arrow and numpy arrays. Everything else is
a Distinct: one number per entry, and a list of the values that it numbers. Functions without a vectorised form are
called once for each distinct tuple of arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Ints, Mask, encoded
from lakerunner.query.logql.stages.template.go_time import Time
from lakerunner.query.logql.stages.template.go_types import Int64, Value, is_true, to_bytes


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value


@dataclass(frozen=True, slots=True)
class Texts:
    """Strings without nulls: `string` or `dictionary<int32, string>`."""

    array: pa.Array


@dataclass(frozen=True, slots=True)
class Numbers:
    """Values of one type of Go: int, int64, float64, bool, or time.Time in UTC as nanoseconds."""

    array: npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.bool_]
    go_type: str


@dataclass(frozen=True, slots=True)
class Distinct:
    codes: Ints
    values: Sequence[Value]


Column: TypeAlias = Constant | Texts | Numbers | Distinct

#: How numpy holds a type of Go, and how its values come back.
_FROM_NUMPY: dict[str, Callable[[object], Value]] = {
    "int": int,  # type: ignore[dict-item]
    "int64": Int64,  # type: ignore[dict-item]
    "float64": float,  # type: ignore[dict-item]
    "bool": bool,
    "time.Time": lambda value: Time.of_ns(int(value)),  # type: ignore[call-overload]
}
_TO_NUMPY: dict[type, tuple[str, type]] = {
    int: ("int", np.int64),
    Int64: ("int64", np.int64),
    float: ("float64", np.float64),
    bool: ("bool", np.bool_),
}


def column_of(codes: Ints, values: Sequence[Value]) -> Column:
    """The best column for values by number."""
    if len(values) == 1:
        return Constant(values[0])
    kinds = {type(value) for value in values}
    if kinds == {str} and all(map(is_clean, values)):
        return Texts(pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string())))
    if len(kinds) == 1 and (found := _TO_NUMPY.get(kinds.pop())) is not None:
        go_type, dtype = found
        return Numbers(np.array(values, dtype)[codes], go_type)
    return Distinct(codes, values)


def is_clean(text: str) -> bool:
    """Whether Arrow can hold the text: all its bytes are UTF-8."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def distinct(column: Column, size: int) -> Distinct:
    """The column with every value once."""
    if isinstance(column, Distinct):
        return column
    if isinstance(column, Constant):
        return Distinct(np.zeros(size, np.int64), [column.value])
    if isinstance(column, Texts):
        array = encoded(column.array)
        return Distinct(array.indices.to_numpy(zero_copy_only=False).astype(np.int64), array.dictionary.to_pylist())
    convert = _FROM_NUMPY[column.go_type]
    # Compared by their bits: -0 is not 0 when it is printed.
    array = column.array.view(np.int64) if column.array.dtype == np.float64 else column.array
    found, codes = np.unique(array, return_inverse=True)
    found = found.view(np.float64) if column.array.dtype == np.float64 else found
    return Distinct(codes.astype(np.int64), [convert(value) for value in found.tolist()])


def tuples_of(columns: Sequence[Column], size: int) -> tuple[Ints, list[tuple[Value, ...]]]:
    """Every distinct tuple of the columns' values that an entry has, and the number of each entry's tuple."""
    varying = [distinct(column, size) for column in columns if not isinstance(column, Constant)]
    codes, chosen = _combined(varying, size)
    lists: list[Sequence[Value]] = []
    rest = iter(zip(varying, chosen, strict=True))
    count = len(chosen[0]) if chosen else 1
    for column in columns:
        if isinstance(column, Constant):
            lists.append([column.value] * count)
        else:
            each, picked = next(rest)
            lists.append([each.values[code] for code in picked.tolist()])
    return codes, list(zip(*lists, strict=True)) if lists else [()]


def _combined(columns: Sequence[Distinct], size: int) -> tuple[Ints, list[Ints]]:
    """Numbers for the tuples of the columns' codes, and the codes of each tuple."""
    if not columns:
        return np.zeros(size, np.int64), []
    if len(columns) == 1:
        # Without sorting: the codes are small.
        used = np.zeros(len(columns[0].values), np.bool_)
        used[columns[0].codes] = True
        return (np.cumsum(used) - 1)[columns[0].codes], [np.flatnonzero(used)]
    codes = columns[0].codes
    for each in columns[1:]:
        codes = np.unique(codes * len(each.values) + each.codes, return_inverse=True)[1]
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes.astype(np.int64), [each.codes[first] for each in columns]


def taken(column: Column, rows: Ints) -> Column:
    """The values of some entries."""
    if isinstance(column, Constant):
        return column
    if isinstance(column, Texts):
        return Texts(column.array.take(pa.array(rows)))
    if isinstance(column, Numbers):
        return Numbers(column.array[rows], column.go_type)
    return Distinct(column.codes[rows], column.values)


def sliced(column: Column, start: int, length: int) -> Column:
    """The values of entries that follow each other."""
    if isinstance(column, Constant):
        return column
    if isinstance(column, Texts):
        return Texts(column.array.slice(start, length))
    if isinstance(column, Numbers):
        return Numbers(column.array[start : start + length], column.go_type)
    return Distinct(column.codes[start : start + length], column.values)


def concatenated(columns: Sequence[Column]) -> Column | None:
    """Slices of texts or of numbers as one column."""
    texts = [plain_texts(column) for column in columns if isinstance(column, Texts)]
    if texts:
        return Texts(pa.concat_arrays(texts))
    numbers = [column for column in columns if isinstance(column, Numbers)]
    return Numbers(np.concatenate([each.array for each in numbers]), numbers[0].go_type) if numbers else None


def truth(column: Column, size: int) -> Mask:
    """The entries whose value `if` takes for true."""
    if isinstance(column, Constant):
        return np.full(size, is_true(column.value))
    if isinstance(column, Texts):
        return text_lengths(column) > 0
    if isinstance(column, Numbers):
        return np.ones(size, np.bool_) if column.go_type == "time.Time" else column.array.astype(np.bool_)
    return np.array([is_true(value) for value in column.values], np.bool_)[column.codes]


def text_lengths(column: Texts) -> Ints:
    """The length of each text in bytes."""
    array = column.array
    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
    else:
        lengths = pc.binary_length(array)
    numbers: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def plain_texts(column: Texts) -> pa.StringArray:
    array = column.array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def raw_texts(codes: Ints, texts: Sequence[str]) -> pa.Array:
    """Texts by number, as bytes where one of them is not UTF-8."""
    if all(map(is_clean, texts)):
        return pa.array(texts, pa.string()).take(pa.array(codes))
    return pa.array([to_bytes(text) for text in texts], pa.binary()).take(pa.array(codes))


@dataclass(frozen=True, slots=True)
class Formatted:
    """What a template gave for each entry, and the error of those that failed (else null)."""

    #: `binary` if some of them are not UTF-8, else `string`.
    texts: pa.Array
    errors: pa.StringArray | None
