"""Segments of rows in a store of a folder, as the ingest would write them."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakerunner.formats.attributes import OVERFLOW, OVERFLOW_TYPE
from lakerunner.model.ids import fresh_id
from lakerunner.model.signal import Signal
from lakerunner.model.signals.logs import LOGS
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.rows.answer_rows import answer_schema
from lakerunner.query.scan.rows.opened import RowsOpener
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.query.scan.rows.scan import scan_segments
from lakerunner.query.scan.rows.unify import conform
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store import keys, segment_writer, table_writer
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from lakerunner.store.segment_writer import describe, encode_tables, segment_of

ORG = uuid.UUID(int=1)
#: Threads that read the row groups of scans in any order.
_THREADS = 3


class LakeOfRows:
    def __init__(self, folder: Path, *, decoded_bytes: int = 0, signal: Signal = LOGS) -> None:
        self.signal = signal
        self.bucket = folder / "bucket"
        self.store = open_store(StoreConfig(self.bucket.as_uri()))
        self.cache = ObjectCache(self.store, folder / "cache", 1 << 30)
        self.opener = RowsOpener(self.store, self.cache, decoded=ByteLru(decoded_bytes))

    def write(self, rows: Sequence[dict[str, Any]], types: dict[str, pa.DataType] | None = None) -> RowSegment:
        """A segment of the rows. Attribute columns have the given types; those without one go to the overflow."""
        fixed = self.signal.rows.schema()
        attributes = types or {}
        schema = pa.schema([*fixed, *(pa.field(name, kind) for name, kind in sorted(attributes.items()))])
        known = set(schema.names)
        spilled = [{name: str(value) for name, value in row.items() if name not in known} for row in rows]
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
        table = pa.Table.from_arrays(columns, schema=schema)
        if any(spilled):
            maps = pa.array([list(one.items()) if one else None for one in spilled], OVERFLOW_TYPE)
            table = table.append_column(OVERFLOW, maps)
        return self.write_table(table)

    def write_table(self, table: pa.Table) -> RowSegment:
        table = table.sort_by([(name, "ascending") for name in self.signal.rows.sort_key])
        (body,) = encode_tables(self.signal, {"": table})
        segment = segment_of(
            self.signal,
            describe(self.signal, table),
            segment_id=fresh_id(),
            org_id=ORG,
            collector="test",
            size_bytes=body.size,
        )
        (key,) = keys.segment_keys(segment)
        self.store.put(key, memoryview(body))
        return RowSegment.of(segment)

    def scan(self, segments: Sequence[RowSegment], scan: RowScan, tally: RowTally | None = None) -> pa.Table | None:
        # The pool ends with the scan: what it still reads after a limit must not outlive the folder.
        with ThreadPoolExecutor(_THREADS) as pool:
            found = scan_segments(
                self.opener,
                segments,
                scan,
                lambda held_bytes: None,
                tally or RowTally(),
                pool=pool,
            )
            batches = list(found)
        if not batches:
            return None
        if scan.ordered:
            return pa.Table.from_batches(batches)
        schema = answer_schema([batch.schema for batch in batches], scan)
        return pa.Table.from_batches([conform(batch, schema) for batch in batches])


#: Small row groups, so that few rows make several.
GROUP_ROWS = 64


def small_groups(monkeypatch: Any, rows: int = GROUP_ROWS) -> None:
    monkeypatch.setattr(segment_writer, "MAX_GROUP_ROWS", rows)


def small_pages(monkeypatch: Any, rows: int) -> None:
    """A few rows per page, so that few rows make several."""
    parquet = table_writer.pq

    class Module:
        ParquetWriter = functools.partial(parquet.ParquetWriter, max_rows_per_page=rows, write_batch_size=1)
        SortingColumn = parquet.SortingColumn

    monkeypatch.setattr(table_writer, "pq", Module)
