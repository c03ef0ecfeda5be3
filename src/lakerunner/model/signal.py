"""The description of a signal. Every stage is written once and reads the differences between signals from here."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakerunner.model.column import Column
from lakerunner.model.errors import Bug


@dataclass(frozen=True, slots=True)
class Table:
    """One Parquet object of a segment: `suffix` distinguishes it from its siblings (`tbl_{id}{suffix}.parquet`)."""

    suffix: str
    columns: tuple[Column, ...]
    sort_key: tuple[str, ...]
    #: Attribute columns (`resource_*`, `scope_*`, `attr_*`) follow the fixed ones.
    attributes: bool = False

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) != len(names) or not set(self.sort_key) <= set(names):
            raise Bug(f"cannot describe table {self.suffix!r}: a column occurs twice, or a sort column is unknown")

    def schema(self) -> pa.Schema:
        """The Arrow schema of the fixed columns."""
        return pa.schema([column.field() for column in self.columns])


@dataclass(frozen=True, slots=True)
class Signal:
    """The tables of a segment, the event time, and the rule for when two rows are duplicates."""

    name: str
    #: The first table holds the rows that are counted. A second one describes them (the series of metrics).
    tables: tuple[Table, ...]
    #: The column whose day and hour choose the partition, and its unit in nanoseconds.
    time_column: str
    time_unit_ns: int
    #: Rows that are equal in all these columns are duplicates. Compaction keeps one.
    dedup_key: tuple[str, ...]
    #: Columns whose distinct values the index stores for pruning.
    pruning: tuple[str, ...]
    #: A column of ids by which single rows are looked up: the index keeps a filter of it per segment.
    id_column: str = ""
    #: Whether the signal is rolled up into coarser tiers.
    rolls_up: bool = False

    @property
    def rows(self) -> Table:
        """The table whose rows are counted."""
        return self.tables[0]

    def __str__(self) -> str:
        return self.name
