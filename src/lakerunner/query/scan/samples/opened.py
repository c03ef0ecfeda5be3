"""Opens metric segments through the disk cache. Decoded series tables and footers stay in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Bug
from lakerunner.query.scan.object_cache import ObjectCache
from lakerunner.query.scan.samples.decoded import DecodedGroup, decoded
from lakerunner.query.scan.samples.row_groups import RowGroup, row_groups
from lakerunner.query.scan.samples.series_table import SeriesTable
from lakerunner.query.series.interned import INTERNED
from lakerunner.query.series.reading import Need
from lakerunner.runtime.byte_lru import ByteLru

T = TypeVar("T")
#: A file, or its bytes.
Source: TypeAlias = Path | pa.BufferReader

#: What pyarrow raises on bytes that are not valid Parquet.
BAD_BYTES = (pa.ArrowException, OSError, ValueError)
#: The columns of label names and values in the series table, and the encodings that Arrow can read as dictionaries.
_LABELS = ("labels.key_value.key", "labels.key_value.value")
_READ_AS_DICTIONARY = frozenset({"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED"})
#: Estimated size of a footer per row group, and the fraction (1/8) of the memory for footers.
_FOOTER_BYTES_PER_GROUP = 8_192
_FOOTER_SHARE = 8


@dataclass(slots=True)
class SampleTally:
    """What reading one segment's objects cost."""

    read_bytes: int = 0
    hits: int = 0
    misses: int = 0
    fetch_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Footer:
    metadata: pq.FileMetaData
    groups: list[RowGroup]


class OpenedFile:
    """A samples file. It is opened only when something must be read that is not in memory."""

    def __init__(self, key: str, source: Source, footer: Footer | None, decoded_groups: ByteLru[DecodedGroup]) -> None:
        self._key = key
        self._source = source
        self._decoded = decoded_groups
        self._file: pq.ParquetFile | None = None
        self._metadata: pq.FileMetaData | None = footer.metadata if footer else None
        self.footer = footer or Footer(self.file.metadata, row_groups(self.file.metadata))

    @property
    def groups(self) -> list[RowGroup]:
        return self.footer.groups

    @property
    def file(self) -> pq.ParquetFile:
        if self._file is None:
            # Pages without a checksum, of earlier releases, are read unchecked.
            self._file = pq.ParquetFile(
                self._source, memory_map=True, metadata=self._metadata, page_checksum_verification=True
            )
        return self._file

    def read(self, group: RowGroup, need: Need | None = None) -> DecodedGroup:
        """The samples of one row group, with what a need asks of a tier. Those read often come from memory."""
        name = f"{self._key}#{group.number}" if need is None else f"{self._key}#{group.number}#{need.value}"
        found = self._decoded.get(name)
        if found is None:
            columns = group.columns(need)
            found = decoded(self.file.read_row_group(group.number, columns=columns, use_threads=False), need)
            self._decoded.offer(name, found, found.size_bytes)
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _read_series(source: Source) -> SeriesTable:
    """The series table, with the label dictionaries of the file. Building new ones would double the time."""
    with pq.ParquetFile(source) as file:
        metadata = file.metadata
    dictionaries = _with_dictionary(metadata)
    with pq.ParquetFile(
        source, metadata=metadata, read_dictionary=dictionaries, page_checksum_verification=True
    ) as file:
        return SeriesTable.of(file.read(use_threads=False))


def _with_dictionary(metadata: pq.FileMetaData) -> list[str]:
    """The label columns that can be read as dictionaries. Arrow refuses some encodings of columns without one."""
    refused = set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(metadata.num_columns)):
            if not _READ_AS_DICTIONARY.issuperset(column.encodings):
                refused.add(column.path_in_schema)
    return [path for path in _LABELS if path not in refused]


class Opener:
    """Opens metric segments and caches their series tables, footers and decoded row groups."""

    def __init__(self, cache: ObjectCache, memory_bytes: int, decoded: ByteLru[Any] | None = None) -> None:
        self._cache = cache
        self._decoded: ByteLru[DecodedGroup] = ByteLru(0) if decoded is None else decoded
        self._tables: ByteLru[SeriesTable] = ByteLru(memory_bytes - memory_bytes // _FOOTER_SHARE)
        self._footers: ByteLru[Footer] = ByteLru(memory_bytes // _FOOTER_SHARE)

    def forget(self) -> None:
        """Empty the caches in memory."""
        self._decoded.clear()
        self._tables.clear()
        self._footers.clear()
        INTERNED.clear()

    def is_local(self, keys: Sequence[str]) -> bool:
        """Whether reading these objects needs no fetch from the store."""
        return all(map(self._cache.has, keys))

    def series(self, key: str, tally: SampleTally) -> SeriesTable:
        """The decoded series table, cached in memory."""
        table = self._tables.get(key)
        if table is not None:
            tally.hits += 1
            return table
        table = self._reading(key, tally, _read_series)
        self._tables.put(key, table, table.size_bytes)
        return table

    @contextmanager
    def samples(self, key: str, tally: SampleTally) -> Iterator[OpenedFile]:
        """The opened samples file. Reads from it may still find bad bytes: see `again_if_bad`."""
        opened = self._reading(key, tally, lambda source: self._open(key, source))
        try:
            yield opened
        finally:
            opened.close()

    def again_if_bad(self, key: str, read: Callable[[], T]) -> T:
        """Call `read`. If the cached bytes of the object are bad, discard them and call it once more."""
        try:
            return read()
        except BAD_BYTES:
            self._cache.discard(key)
            return read()

    def _open(self, key: str, source: Source) -> OpenedFile:
        known = self._footers.get(key)
        opened = OpenedFile(key, source, known, self._decoded)
        if known is None:
            self._footers.put(key, opened.footer, _FOOTER_BYTES_PER_GROUP * max(1, len(opened.groups)))
        return opened

    def _reading(self, key: str, tally: SampleTally, read: Callable[[Source], T]) -> T:
        for fresh in (False, True):
            started = time.perf_counter()
            found = self._cache.get(key)
            tally.fetch_s += time.perf_counter() - started
            tally.hits, tally.misses = tally.hits + found.hit, tally.misses + (not found.hit)
            tally.read_bytes += found.size_bytes
            try:
                return read(found.source)
            except BAD_BYTES:
                # Evicted after `get`, or damaged on the disk. Either way the store has the object.
                self._cache.discard(key)
                if fresh:
                    raise
        raise Bug("cannot reach this line")
