"""One type per attribute column in all segments of an org and signal, and how other values are kept.

Readers that merge the schemas of many files, such as Spark, refuse a column that has two types. So the first segment
with a column decides its type for good. A value that the type cannot hold goes to the overflow as text, under the
name of its column, where queries find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import EXACT, are_exact, as_text, common_type

#: Names of the types, as the index stores them. All numbers are double, because senders write 1 and 1.5 for the same
#: attribute. Only an attribute that began with integers which no double holds is int64.
TYPES: Final[Mapping[str, pa.DataType]] = {
    "text": pa.string(),
    "double": pa.float64(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
}
_NAMES = {kind: name for name, kind in TYPES.items()}
#: Longer names get no column: the index could not hold them as a key.
_NAME_CHARS = 512
#: Texts that may be what we write for a value of the type.
_WRITTEN = {
    pa.float64(): r"^-?[0-9]{1,17}(\.[0-9]{1,17})?$",
    pa.int64(): r"^-?[0-9]{1,18}$",
    pa.bool_(): r"^(true|false)$",
}


@dataclass(frozen=True, slots=True)
class AttributeTypes:
    """The types of an org's attribute columns in one signal, as far as they are known."""

    #: Column -> name of its type.
    known: Mapping[str, str] = field(default_factory=dict)
    #: No column may be added; attributes without one go to the overflow.
    is_full: bool = False

    def has_column(self, name: str) -> bool:
        """Whether the attribute may have a column of its own."""
        return name in self.known or (not self.is_full and len(name) <= _NAME_CHARS)

    def type_of(self, name: str, columns: Iterable[pa.ChunkedArray]) -> pa.DataType:
        """The type of the column: the known one, else the one that its first values ask for."""
        if name in self.known:
            return TYPES[self.known[name]]
        columns = list(columns)
        types = {plain_type(column.type) for column in columns}
        ints = [column for column in columns if pa.types.is_integer(column.type)]
        if types == {pa.int64()}:
            return pa.float64() if all(map(are_exact, ints)) else pa.int64()
        return common_type(types, ints)

    def added(self, schema: pa.Schema, fixed: Iterable[str]) -> dict[str, str]:
        """The attribute columns of a written table that are not known, with their types."""
        known = {*self.known, *fixed}
        return {
            each.name: _NAMES[kind]
            for each in schema
            if each.name not in known and (kind := plain_type(each.type)) in _NAMES
        }


def plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def fit(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    """Convert the values to the type. Return them, null where the type cannot hold one, and a mask of those or None.

    A value fits if its text stays the same, so a filter on the column matches the same rows.
    """
    if array.type == kind:
        return array, None
    if kind == pa.string():
        return as_text(array), None
    if kind == pa.float64() and pa.types.is_integer(array.type):
        if are_exact(array):
            return array.cast(kind), None
        fits = pc.and_(pc.greater_equal(array, -EXACT), pc.less_equal(array, EXACT))
        return pc.if_else(fits, array, None).cast(kind), pc.invert(pc.fill_null(fits, True))
    text = as_text(array)
    written = pc.match_substring_regex(text, _WRITTEN[kind])
    values = pc.if_else(written, text, None).cast(kind)
    fits = pc.fill_null(pc.equal(as_text(values), text), False)
    left = pc.and_(text.is_valid(), pc.invert(fits))
    return pc.if_else(fits, values, None), left if pc.any(left).as_py() else None
