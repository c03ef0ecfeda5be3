"""Merging the sorted samples of many segments, in pieces of whole series: memory does not depend on their number.

Of two samples of one series and time, the one of the older segment stays, as in the scan of queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.signal import Table
from lakerunner.model.time import NS_PER_MS, TimeRange
from lakerunner.pipeline.ordering import sort_order, take, whole

#: The metric and the id of a series.
Key = tuple[str, int]
#: Rows that one segment gives at a time, at least: reading fewer costs more than keeping them.
_MIN_BATCH_ROWS = 4_096
_NS_PER_MS = NS_PER_MS


class Cursor:
    """The rows of one segment that are not merged yet, in its order."""

    def __init__(self, file: pa.NativeFile, description: Table, rows: TimeRange | None, batch_rows: int) -> None:
        metadata = pq.read_metadata(file)
        file.seek(0)
        coded = ["metric_name"] if _has_dictionary(metadata, "metric_name") else []
        parquet = pq.ParquetFile(file, metadata=metadata, read_dictionary=coded, pre_buffer=False)
        names = [column.name for column in description.columns]
        self._batches = parquet.iter_batches(batch_rows, columns=names, use_threads=False)
        self._schema = description.schema()
        self._rows = rows
        #: Rows read and not taken; empty only at the end.
        self.buffer: pa.Table | None = None
        self.is_at_end = False
        self.extend()

    def extend(self) -> None:
        """Read on, until there is at least one more row within the time."""
        while True:
            batch = next(self._batches, None)
            if batch is None:
                self.is_at_end = True
                return
            table = _with_codes(pa.Table.from_batches([batch]))
            if self._rows is not None:
                times = table.column("timestamp").cast(pa.int64())
                first, last = -(-self._rows.start_ns // _NS_PER_MS), -(-self._rows.end_ns // _NS_PER_MS)
                table = table.filter(pc.and_(pc.greater_equal(times, first), pc.less(times, last)))
            if table.num_rows:
                self.buffer = table if self.buffer is None else pa.concat_tables([self.buffer, table])
                return

    @property
    def last_key(self) -> Key:
        assert self.buffer is not None
        return _key_at(self.buffer, self.buffer.num_rows - 1)

    def take_below(self, key: Key | None) -> pa.Table | None:
        """Take the rows of series before that one, or all."""
        if self.buffer is None:
            return None
        cut = self.buffer.num_rows if key is None else _rows_below(self.buffer, key)
        taken = self.buffer.slice(0, cut)
        self.buffer = self.buffer.slice(cut) if cut < self.buffer.num_rows else None
        return taken if cut else None


def _has_dictionary(metadata: pq.FileMetaData, name: str) -> bool:
    """Whether the column has a dictionary in all row groups. Arrow cannot make one of the other encodings."""
    at = metadata.schema.to_arrow_schema().get_field_index(name)
    columns = [metadata.row_group(group).column(at) for group in range(metadata.num_row_groups)]
    return all("DELTA" not in "".join(column.encodings) for column in columns)


def _with_codes(table: pa.Table) -> pa.Table:
    """With a dictionary of metrics, whatever the encoding was, so that all tables have one schema."""
    columns = dict(zip(table.column_names, table.columns, strict=True))
    if not pa.types.is_dictionary(columns["metric_name"].type):
        columns["metric_name"] = columns["metric_name"].dictionary_encode()
    return pa.table(columns)


def _key_at(table: pa.Table, row: int) -> Key:
    return table.column("metric_name")[row].as_py(), table.column("tid")[row].as_py()


def _rows_below(table: pa.Table, key: Key) -> int:
    low, high = 0, table.num_rows
    while low < high:
        middle = (low + high) // 2
        if _key_at(table, middle) < key:
            low = middle + 1
        else:
            high = middle
    return low


def merged(
    files: Sequence[tuple[pa.NativeFile, TimeRange]], description: Table, rows: TimeRange, piece_rows: int
) -> Iterator[pa.Table]:
    """The samples within a range of time, in pieces of about `piece_rows`. A series is never cut, and columns that
    are all null are missing.

    `files` are ordered: the first of two equal samples stays. Each comes with the range of its own rows.
    """
    batch_rows = max(_MIN_BATCH_ROWS, piece_rows // max(1, len(files)))
    cursors = []
    for file, own in files:
        inside = rows.start_ns <= own.start_ns and own.end_ns <= rows.end_ns
        cursors.append(Cursor(file, description, None if inside else rows, batch_rows))
    waiting: list[tuple[int, pa.Table]] = []
    held = 0
    while True:
        cursors = [cursor for cursor in cursors if cursor.buffer is not None]
        if not cursors:
            break
        # Up to here, every segment has given all that it has.
        unread = [cursor for cursor in cursors if not cursor.is_at_end]
        frontier = min((cursor.last_key for cursor in unread), default=None)
        for place, cursor in enumerate(cursors):
            taken = cursor.take_below(frontier)
            if taken is not None:
                waiting.append((place, taken))
                held += taken.num_rows
        for cursor in unread:
            if cursor.buffer is not None and cursor.last_key == frontier:
                cursor.extend()
        if held >= piece_rows:
            yield _in_order(waiting, description)
            waiting, held = [], 0
    if waiting:
        yield _in_order(waiting, description)


def _in_order(parts: Sequence[tuple[int, pa.Table]], description: Table) -> pa.Table:
    table = pa.concat_tables([part for _, part in sorted(parts, key=lambda each: each[0])])
    present = [name for name in table.column_names if table.column(name).null_count < table.num_rows]
    table = pa.table({name: whole(table.column(name)) for name in present})
    order = sort_order(table, description.sort_key)
    if order is not None:
        table = take(table, order)
    return _once(table)


def _once(table: pa.Table) -> pa.Table:
    tids, times = (_ints(table, name) for name in ("tid", "timestamp"))
    again = (tids[1:] == tids[:-1]) & (times[1:] == times[:-1])
    if not again.any():
        return table
    return take(table, np.flatnonzero(np.concatenate([[True], ~again])))


def _ints(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    found: np.ndarray[Any, np.dtype[np.int64]] = whole(table.column(name)).cast(pa.int64()).to_numpy()
    return found
