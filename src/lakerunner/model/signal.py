"""A signal is a description: every stage is written once and reads what it needs to know from here."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.errors import Bug


@dataclass(frozen=True, slots=True)
class Table:
    """One Parquet object of a segment: `suffix` tells it from its siblings (`tbl_{id}{suffix}.parquet`)."""

    suffix: str
    columns: tuple[Column, ...]
    sort_key: tuple[str, ...]
    #: Attribute columns (`resource_*`, `scope_*`, `attr_*`) follow the fixed ones.
    attributes: bool = False

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names) or not set(self.sort_key) <= set(names):
            raise Bug(f"cannot describe table {self.suffix!r}: a column is doubled, or a sort column unknown")

    def schema(self) -> pa.Schema:
        """The Arrow schema of the fixed columns."""
        return pa.schema([column.field() for column in self.columns])


@dataclass(frozen=True, slots=True)
class Signal:
    """What makes logs logs: the tables of a segment, the event time, and when two rows are the same row."""

    name: str
    #: The first table holds the rows that are counted; a further one describes them (the series of metrics).
    tables: tuple[Table, ...]
    #: The column whose day and hour choose the partition, and what one unit of it is in nanoseconds.
    time_column: str
    time_unit_ns: int
    #: Rows equal in all of these are one row, delivered twice. Compaction keeps one.
    dedup_key: tuple[str, ...]
    #: Columns whose distinct values are kept in the index for pruning.
    pruning: tuple[str, ...]
    #: Whether coarser tiers are made of it.
    rolls_up: bool = False

    @property
    def rows(self) -> Table:
        """The table whose rows are counted."""
        return self.tables[0]

    def __str__(self) -> str:
        return self.name
