"""The types that the attributes of a span were sent with, where the stored column does not tell.

A column has one type in all segments, so what a value was is not always seen from it: 2 and 2.0 are both a double, an
array is stored as JSON. The rule below says what a stored value means. A row in which an attribute means something
else has a JSON object of column and type in the column `sent_types`, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.formats.spelling import Spelled, spelled_column, spelled_rows
from lakerunner.model.signals.traces import SENT

STRING, BOOL, INT, DOUBLE = "string", "bool", "int", "double"
ARRAY, KVLIST, BYTES, EMPTY = "array", "kvlist", "bytes", "empty"
#: The types that a stored column can say by itself.
PLAIN = (STRING, BOOL, INT, DOUBLE)
#: Whole numbers up to here are integers in a column of doubles.
_EXACT = 1 << 53
_STRING, _BOOL, _INT, _DOUBLE = range(4)

Codes = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]


def implied(values: pa.Array | pa.ChunkedArray) -> Codes:
    """Return the place in `PLAIN` of the type that each stored value means by itself.

    >>> [PLAIN[code] for code in implied(pa.array([1.0, 1.5])).tolist()]
    ['int', 'double']
    """
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
        with np.errstate(invalid="ignore"):
            whole = (np.floor(numbers) == numbers) & (np.abs(numbers) <= _EXACT)
        return np.where(whole, _INT, _DOUBLE).astype(np.int8)
    code = _BOOL if pa.types.is_boolean(kind) else _INT if pa.types.is_integer(kind) else _STRING
    return np.full(len(values), code, np.int8)


def unlike(source: pa.Array, index: npt.NDArray[np.int64], sent: str) -> Mask | bool:
    """Return which of the values at these places do not mean the type that was sent.

    A mask, or True if none of them does, or False if all of them do.
    """
    if sent not in PLAIN:
        return True
    if not pa.types.is_floating(source.type):
        return PLAIN[int(implied(pa.nulls(1, source.type))[0])] != sent
    if sent != DOUBLE:
        # Integers of a column of doubles are whole and exact: `common_type` saw to it.
        return sent != INT
    found = implied(source.take(pa.array(index))) != _DOUBLE
    return found if found.any() else False


def retyped(part: pa.Table, before: pa.Table, misfits: Sequence[tuple[str, pa.Array]], lost: Sequence[str]) -> pa.Table:
    """Return the rows with `sent_types` corrected for columns that got another type, or moved to the overflow.

    `part` holds the rows of `before`. `misfits` are the values that fit no column, null elsewhere; `lost` names the
    columns that are in the overflow now.
    """
    changes = list(_changes(part, before, dict(misfits), lost))
    if not changes:
        return part
    marks = spelled_rows(part.column(SENT).combine_chunks())
    spelled = [
        Spelled(np.flatnonzero(rows), name, kind) for name, by_kind in marks.items() for kind, rows in by_kind.items()
    ]
    for name, had, has in changes:
        open_rows = had != has
        for marked in marks.get(name, {}).values():
            open_rows &= ~marked
        for code, kind in enumerate(PLAIN):
            rows = np.flatnonzero(open_rows & (had == code))
            if len(rows):
                spelled.append(Spelled(rows, name, kind))
    at = part.column_names.index(SENT)
    return part.set_column(at, part.schema.field(SENT), spelled_column(spelled, part.num_rows))


def _changes(
    part: pa.Table, before: pa.Table, misfits: Mapping[str, pa.Array], lost: Sequence[str]
) -> Iterator[tuple[str, Codes, Codes]]:
    """Yield the columns whose values mean another type than before: the name, the old codes and the new ones."""
    stored, fixed = set(part.column_names), {SENT}
    for name in before.column_names:
        if name in fixed:
            continue
        column = before.column(name)
        if name in stored:
            now = part.column(name)
            same = now.type == column.type or (pa.types.is_dictionary(column.type) and pa.types.is_string(now.type))
            widened = pa.types.is_integer(column.type) and pa.types.is_floating(now.type)
            if same or (widened and name not in misfits):
                continue
            has = implied(now)
            if name in misfits:
                has[misfits[name].is_valid().to_numpy(zero_copy_only=False)] = _STRING
        elif name in lost:
            has = np.zeros(before.num_rows, np.int8)
        else:
            continue
        had = implied(column)
        valid = column.is_valid().to_numpy()
        had = np.where(valid, had, has).astype(np.int8)
        if (had != has).any():
            yield name, had, has
