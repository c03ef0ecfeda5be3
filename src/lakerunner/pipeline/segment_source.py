"""Read a table of a stored segment in batches: the file is in memory if it is small, else on a local disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import Table
from lakerunner.pipeline.ordering import whole
from lakerunner.store.nanos import SUFFIX, split_nanos
from lakerunner.store.object_store import ObjectStore

#: Objects up to this size are kept in memory.
_SMALL_BYTES = 4 << 20
#: Bytes read ahead of each column: little, because many columns of many files are open at once.
_BUFFER_BYTES = 64 << 10
#: A sample is made of this many runs of neighbouring rows.
SAMPLE_RUNS, SAMPLE_RUN_ROWS = 16, 256


class TableSource:
    """One Parquet file of a segment."""

    def __init__(self, store: ObjectStore, key: str, size_hint: int, scratch: Path) -> None:
        self.key = key
        self._path: Path | None = None
        if size_hint <= _SMALL_BYTES:
            self._file = self._opened(pa.BufferReader(store.get(key)))
        else:
            self._path = scratch / key.rpartition("/")[2]
            with self._path.open("xb") as copy:
                for part in store.stream(key):
                    copy.write(part)
            self._file = self._opened(self._path)

        self.schema: pa.Schema = self._file.schema_arrow

    @staticmethod
    def _opened(source: Path | pa.BufferReader) -> pq.ParquetFile:
        return pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True)

    @property
    def row_count(self) -> int:
        return int(self._file.metadata.num_rows)

    @property
    def row_groups(self) -> int:
        return int(self._file.metadata.num_row_groups)

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows in order, as they are stored, about this many at a time."""
        gathered: list[pa.RecordBatch] = []
        count = 0
        # Arrow ends a batch at every page of a column with a dictionary. Such batches have a few hundred rows.
        for batch in self._file.iter_batches(rows, columns=columns, use_threads=False):
            gathered.append(batch)
            count += batch.num_rows
            if count >= rows:
                yield self._table(gathered)
                gathered, count = [], 0
        if gathered:
            yield self._table(gathered)

    def _table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(batches)
        schema = table.schema.with_metadata(self.schema.metadata)
        return pa.Table.from_arrays([whole(column) for column in table.columns], schema=schema)

    def head(self, row_group: int, rows: int) -> pa.Table:
        """The first rows of a row group."""
        return self._table([next(self._file.iter_batches(rows, row_groups=[row_group], use_threads=False))])

    def present(self) -> dict[str, int]:
        """Column -> rows with a value, from the footer; for a nested column, all rows."""
        footer = self._file.metadata
        found = dict.fromkeys(self.schema.names, 0)
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            for index in range(group.num_columns):
                column = group.column(index)
                name = column.path_in_schema
                if name in found:
                    known = column.statistics is not None and column.statistics.has_null_count
                    nulls = column.statistics.null_count if known else 0
                    found[name] += group.num_rows - nulls
                elif (top := name.partition(".")[0]) in found and not found[top]:
                    found[top] = footer.num_rows
        return found

    def close(self) -> None:
        self._file.close(force=True)
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def stored_schema(description: Table) -> pa.Schema:
    """The fixed columns as files have them."""
    return split_nanos(description.schema().empty_table()).schema


def stored_sort_key(description: Table, schema: pa.Schema) -> list[str]:
    """The sort key of stored rows: a remainder of nanoseconds follows its column."""
    return [name for column in description.sort_key for name in (column, column + SUFFIX) if name in schema.names]


def sample_places(sources: Sequence[TableSource]) -> list[tuple[TableSource, int]]:
    """Row groups spread over all sources, from each of which a sample takes the first rows."""
    places = [(source, group) for source in sources for group in range(source.row_groups)]
    chosen = np.unique(np.linspace(0, len(places) - 1, SAMPLE_RUNS).astype(int))
    return [places[index] for index in chosen.tolist()]


def sample_of(sources: Sequence[TableSource], convert: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> pa.Table:
    """Runs of rows from all sources, from which encodings are chosen."""
    heads = [source.head(group, SAMPLE_RUN_ROWS) for source, group in sample_places(sources)]
    return pa.concat_tables([convert(head) for head in heads]).unify_dictionaries()
