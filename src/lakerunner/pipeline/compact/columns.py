"""The columns of a merged table, and how the rows of each input get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakerunner.formats.attribute_types import AttributeTypes
from lakerunner.formats.attributes import OVERFLOW
from lakerunner.formats.unify_tables import CommonColumns, Shape, common_columns, overflowing_keys
from lakerunner.model.errors import BadInput
from lakerunner.model.signal import Table
from lakerunner.model.signals.logs import SPELLED
from lakerunner.model.signals.traces import SENT
from lakerunner.pipeline.segment_source import TableSource, sample_of, stored_schema
from lakerunner.store.encoding import Counts

#: Rows per batch when only the overflow is read.
_OVERFLOW_ROWS = 1 << 15


class MergedColumns:
    """Decided from footers, before a row is read; only overflows are read in advance, to promote what is frequent."""

    def __init__(self, sources: Sequence[TableSource], description: Table, types: AttributeTypes) -> None:
        self._sources = sources
        fixed = stored_schema(description)
        for source in sources:
            _check(source, description, fixed)
        shapes = [_shape(source, description, types) for source in sources]
        self._common: CommonColumns | None = None
        self._schema = fixed
        if description.attributes:
            self._common = common_columns(shapes, fixed, types=types)
            self._schema = self._common.schema
        self._schema = _without_absent_sparse(self._schema, description, shapes, self._common)
        self.counts = Counts(
            sum(shape.row_count for shape in shapes),
            {name: sum(shape.present.get(name, 0) for shape in shapes) for name in self._schema.names},
        )

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def convert(self, rows: pa.Table) -> pa.Table:
        if self._common is not None:
            return self._common.unified(rows).select(self._schema.names)
        stored = set(rows.column_names)
        columns = [
            rows.column(each.name) if each.name in stored else pa.nulls(rows.num_rows, each.type)
            for each in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def batches(self, source: TableSource, rows: int) -> Iterator[pa.Table]:
        return map(self.convert, source.batches(rows))

    def sample(self) -> pa.Table:
        """Runs of rows from all inputs, from which encodings are chosen."""
        return sample_of(self._sources, self.convert)


def _shape(source: TableSource, description: Table, types: AttributeTypes) -> Shape:
    overflowing: dict[str, int] = {}
    if description.attributes and OVERFLOW in source.schema.names:
        for batch in source.batches(_OVERFLOW_ROWS, [OVERFLOW]):
            for name, rows in overflowing_keys(batch.column(OVERFLOW), types).items():
                overflowing[name] = overflowing.get(name, 0) + rows
    return Shape(source.schema, source.row_count, source.present(), overflowing=overflowing)


def _check(source: TableSource, description: Table, fixed: pa.Schema) -> None:
    """Refuse a file that this release would not merge without loss."""
    stored = source.schema
    for each in fixed:
        if each.name not in stored.names:
            if not each.nullable:
                raise BadInput(f"cannot merge {source.key}: it has no column {each.name}")
        elif stored.field(each.name).type != each.type:
            kind = stored.field(each.name).type
            raise BadInput(f"cannot merge {source.key}: its column {each.name} is {kind}, not {each.type}")
    if not description.attributes and (unknown := set(stored.names) - set(fixed.names)):
        raise BadInput(f"cannot merge {source.key}: this release does not know its columns {sorted(unknown)}")


def _without_absent_sparse(
    schema: pa.Schema, description: Table, shapes: Sequence[Shape], common: CommonColumns | None
) -> pa.Schema:
    """Drop the columns that exist only where a row has a value, if no row can have one.

    Keys are respelled where inputs differ in the usual spelling of a column.
    """
    for column in description.columns:
        may_have = any(shape.present.get(column.name) for shape in shapes)
        if column.name == SPELLED and common is not None:
            may_have |= any(map(common.respells, shapes))
        if column.name == SENT and common is not None:
            may_have |= any(map(common.retypes, shapes))
        if column.sparse and not may_have:
            schema = schema.remove(schema.get_field_index(column.name))
    return schema
