"""Write a table of a segment to a file, given in pieces of any size: row groups are written as they fill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from lakerunner.model.signal import Signal, Table
from lakerunner.pipeline.ordering import whole
from lakerunner.store.encoding import Counts, choose_encodings
from lakerunner.store.segment_writer import group_rows, without_empty_sparse
from lakerunner.store.table_writer import MAX_GROUP_BYTES, MAX_GROUP_ROWS, SETTLED_LEVEL, TableWriter


class TableOutput:
    """Takes rows as they are stored, in order of the sort key. A table of one row group is written as ingest does."""

    def __init__(
        self, path: Path, signal: Signal, description: Table, counts: Counts, sample: Callable[[], pa.Table]
    ) -> None:
        self._path = path
        self._signal = signal
        self._description = description
        #: Of all rows that will come, and some of them: encodings are chosen before the last rows are known.
        self._counts, self._sample = counts, sample
        self._sink: pa.NativeFile | None = None
        self._writer: TableWriter | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = self._pending_bytes = 0
        self.row_count = 0

    def add(self, rows: pa.Table) -> None:
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        self._pending_bytes += rows.nbytes
        self.row_count += rows.num_rows
        if self._pending_rows > MAX_GROUP_ROWS or self._pending_bytes > MAX_GROUP_BYTES:
            self._write_groups(keep=True)

    def close(self) -> int:
        """Write the rest and return the size of the file in bytes."""
        try:
            self._write_groups(keep=False)
            assert self._writer is not None and self._sink is not None
            self._writer.close()
            size_bytes: int = self._sink.tell()
            return size_bytes
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without a footer."""
        if self._sink is not None and not self._sink.closed:
            self._sink.close()

    def _write_groups(self, *, keep: bool) -> None:
        # In one piece, because pieces that share a dictionary would each count as large as all of it.
        rows = _one_piece(self._pending[0] if len(self._pending) == 1 else pa.concat_tables(self._pending))
        if self._writer is None:
            rows = self._open(rows, is_all=not keep)
        per_group = group_rows(rows)
        start = 0
        while rows.num_rows - start > (per_group if keep else 0):
            assert self._writer is not None
            self._writer.write_group(rows.slice(start, per_group))
            start += per_group
        left = rows.slice(start)
        self._pending, self._pending_rows, self._pending_bytes = [left], left.num_rows, left.nbytes

    def _open(self, rows: pa.Table, *, is_all: bool) -> pa.Table:
        if is_all:
            rows = without_empty_sparse(self._description, rows)
            chosen = choose_encodings(self._description, rows, group_rows(rows))
        else:
            chosen = choose_encodings(self._description, self._sample(), MAX_GROUP_ROWS, self._counts)
        self._sink = pa.OSFile(str(self._path), "wb")
        self._writer = TableWriter(
            self._sink, self._signal, self._description, rows.schema, chosen, SETTLED_LEVEL
        )  # fmt: skip
        return rows


def _one_piece(table: pa.Table) -> pa.Table:
    """One array per column: a dictionary that changes within a row group would be written as plain values."""
    return pa.Table.from_arrays([whole(column) for column in table.columns], schema=table.schema)
