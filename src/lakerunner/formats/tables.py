"""Columns to a table of the model: fixed columns first and in order, typed, absent ones null."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakerunner.model.signal import Table


def table_of(description: Table, columns: Mapping[str, pa.Array], row_count: int) -> pa.Table:
    arrays = []
    for column in description.columns:
        array = columns.get(column.name)
        if array is None:
            array = pa.nulls(row_count, column.type)
        elif array.type != column.type:
            array = array.cast(column.type)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=description.schema())


def empty(description: Table) -> pa.Table:
    return description.schema().empty_table()
