"""Write one table of a segment as a Parquet file, a row group at a time, so that memory does not grow with the file."""

from __future__ import annotations

from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import Signal, Table
from lakerunner.store.encoding import Encodings
from lakerunner.store.needles import FilterSpool
from lakerunner.store.runs import RunSpool

#: Version of the layout that this release writes, also stored in `Segment.format_version` and the file's metadata.
FORMAT_VERSION = 1
#: Rows per group: few enough that a lookup reads little, enough for a dictionary to pay off. Readers work in parallel
#: on row groups.
MAX_GROUP_ROWS = 1 << 17
MAX_GROUP_BYTES = 128 << 20
#: Largest dictionary of a row group; the remaining values are written plain. Large, so that ids fit into one.
_DICTIONARY_BYTES = 16 << 20
#: zstd level 1 writes a third faster than 3 for 4% more bytes. Compacted segments are read for longer and use the
#: higher level.
FRESH_LEVEL, SETTLED_LEVEL = 1, 6

METADATA_PREFIX = b"lakerunner."


class TableWriter:
    """Writes tables that are as they are stored (`split_nanos`), all of one schema and in the order of the sort key."""

    def __init__(
        self,
        sink: pa.NativeFile,
        signal: Signal,
        description: Table,
        schema: pa.Schema,
        chosen: Encodings,
        compression_level: int,
    ) -> None:
        self._sink = sink
        self._needles = FilterSpool([each.name for each in description.columns if each.needles])
        self._runs = RunSpool(next((each.name for each in description.columns if each.runs), None))
        self._writer = pq.ParquetWriter(
            sink,
            _with_metadata(signal, description, schema),
            compression="zstd",
            compression_level=compression_level,
            use_dictionary=chosen.dictionary,
            column_encoding=chosen.others or None,
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
            write_page_index=True,
            # Readers find bit rot with it, which ZSTD alone does not.
            write_page_checksum=True,
            bloom_filter_options=chosen.blooms or None,
            sorting_columns=_sorting_columns(description, schema),
        )

    def write_group(self, rows: pa.Table) -> None:
        """Write one row group, and make its needle filters and runs while its values are at hand."""
        begin = self._sink.tell()
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._needles.add_group(rows, self._sink.tell() - begin)
        self._runs.add_group(rows)

    def close(self) -> None:
        """Write the needle filters and the footer. The sink stays open."""
        if found := {**self._needles.append_to(self._sink), **self._runs.metadata()}:
            self._writer.add_key_value_metadata(found)
        self._writer.close()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()


def _with_metadata(signal: Signal, description: Table, schema: pa.Schema) -> pa.Schema:
    ours = {
        METADATA_PREFIX + b"signal": signal.name.encode(),
        METADATA_PREFIX + b"table": (description.suffix.removeprefix(".") or "rows").encode(),
        METADATA_PREFIX + b"format_version": str(FORMAT_VERSION).encode(),
    }
    return schema.with_metadata({**(schema.metadata or {}), **ours})


def _sorting_columns(description: Table, schema: pa.Schema) -> list[pq.SortingColumn]:
    return list(pq.SortingColumn.from_ordering(schema, [(name, "ascending") for name in description.sort_key]))
