"""Reads columns of rows as they are stored, with the values of the overflow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW
from lakerunner.query.scan.rows.conditions.evaluate import Ints, overflow_values
from lakerunner.query.scan.rows.opened import Footer
from lakerunner.query.scan.rows.row_group.group import GroupReader
from lakerunner.query.scan.rows.unify import fitted

#: Dictionaries of fewer rows are not worth keeping.
_FEW_ROWS = 256


def stored_names(footer: Footer, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return footer.names
    return [name for name in dict.fromkeys(columns) if name in footer.fields and not footer.is_remainder(name)]


def group_batch(
    group: GroupReader,
    rows: Ints,
    columns: Sequence[str] | None,
    *,
    apart: bool = False,
    edges: Ints | None = None,
) -> pa.RecordBatch:
    """Read the rows with their stored types, and with dictionaries where these are smaller than the rows are many.

    Requested columns that the file lacks are left out. With `edges`, times may be others of the same interval.
    """
    footer = group.opened.footer
    stored = stored_names(footer, columns)
    overflowing = [] if apart else [name for name in columns or () if footer.may_overflow(name, group.number)]
    names = [*stored, *([OVERFLOW] if overflowing and OVERFLOW not in stored else [])]
    arrays = group.columns(names, rows, edges)
    for name in overflowing:
        arrays[name] = with_overflow(arrays.get(name), arrays[OVERFLOW], name)
    names = [*stored, *(name for name in overflowing if name not in stored)]
    values = [_without_large_dictionary(arrays[name]) for name in names]
    fields = [pa.field(name, array.type) for name, array in zip(names, values, strict=True)]
    schema = pa.schema(fields, metadata=footer.attribute_keys)
    return pa.RecordBatch.from_arrays(values, schema=schema)


def compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows without the rest of the pages that they are slices of."""
    if batch.get_total_buffer_size() <= 2 * batch.nbytes:
        return batch
    return batch.take(pa.array(np.arange(batch.num_rows)))


def without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in batch.columns]
    fields = [pa.field(name, array.type) for name, array in zip(batch.schema.names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=batch.schema.metadata))


def _without_large_dictionary(array: pa.Array) -> pa.Array:
    """Few rows are decoded: work on each distinct value of the row group would take longer."""
    if pa.types.is_dictionary(array.type) and len(array) < max(_FEW_ROWS, len(array.dictionary)):
        return array.dictionary_decode()
    return array


def with_overflow(array: pa.Array | None, maps: pa.Array, name: str) -> pa.Array:
    """The column, with nulls replaced by the overflow's text."""
    texts = overflow_values(maps, name)
    if array is None:
        return texts
    if texts.null_count == len(texts):
        return array
    own = fitted(array, pa.string())
    return pc.coalesce(own, texts)
