"""One column of a segment: its name, Arrow type and what it means."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: pa.DataType
    doc: str
    nullable: bool = True
    #: Point lookups on this column use a bloom filter.
    bloom: bool = False
    #: Searches for a text within this column use needle filters (`store/needles.py`).
    needles: bool = False
    #: Rows are sorted by this column first, and the file says where the rows of each value lie (`store/runs.py`).
    runs: bool = False
    #: Only a segment in which some row has a value has this column.
    sparse: bool = False

    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, nullable=self.nullable)
