"""Makes rows of an answer: the columns that it asks for, in one schema for all segments."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakerunner.formats.attributes import OVERFLOW
from lakerunner.query.scan.rows.opened import Footer
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.row_columns import stored_names, with_overflow
from lakerunner.query.scan.rows.row_group.rows import Found
from lakerunner.query.scan.rows.unify import fitted, output_schema
from lakerunner.store.nanos import join_nanos


def stored_columns(footer: Footer, scan: RowScan) -> list[str]:
    """The columns of the file that the answer needs."""
    return stored_names(footer, None if scan.columns is None else (scan.signal.time_column, *scan.columns))


def segment_schema(footer: Footer, scan: RowScan) -> pa.Schema:
    """The segment's contribution to the schema of the answer."""
    fields = {name: footer.fields[name] for name in stored_columns(footer, scan)}
    schema = pa.schema([pa.field(name, field.type) for name, field in fields.items()])
    for name in scan.columns or ():
        # A value that is a number in another segment may be text in the overflow of this one.
        if footer.may_overflow(name):
            at = schema.get_field_index(name)
            text = pa.field(name, pa.string())
            schema = schema.append(text) if at < 0 else schema.set(at, text)
    return schema


def rows_of(found: Found, scan: RowScan, schema: pa.Schema) -> pa.RecordBatch:
    """Read the found rows with the columns of the answer's schema, in the order of the file."""
    group, rows = found.group, found.rows
    footer = group.opened.footer
    stored = stored_columns(footer, scan)
    overflowing = {name for name in scan.columns or () if footer.may_overflow(name)}
    arrays = group.columns([*stored, *([OVERFLOW] if overflowing and OVERFLOW not in stored else [])], rows)
    columns = []
    for field in schema:
        array = arrays.get(field.name)
        if field.name in overflowing:
            array = with_overflow(array, arrays[OVERFLOW], field.name)
        columns.append(_output(array, field, len(rows)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def answer_schema(schemas: Sequence[pa.Schema], scan: RowScan) -> pa.Schema:
    """The schema of the answer, from the schemas of segments or of several workers' answers."""
    return output_schema(scan.signal, scan.columns, schemas)


def _output(array: pa.Array | None, field: pa.Field, rows: int) -> pa.Array:
    if array is None:
        return pa.nulls(rows, field.type)
    if pa.types.is_list(array.type):
        # Times within events have their own remainder of nanoseconds.
        joined = join_nanos(pa.table([array], schema=pa.schema([pa.field(field.name, array.type)])))
        array = joined.column(0).combine_chunks()
    return fitted(array, field.type)
