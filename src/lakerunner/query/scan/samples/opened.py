"""Opens metric segments through the disk cache. Decoded series tables and footers stay in memory."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from lakerunner.model.errors import Bug, LakeError
from lakerunner.query.scan.object_cache import Cached, ObjectCache
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
#: Series of larger objects are read for each of these: small ones are read more often, and are more often alike.
_ALIKE_BYTES = 1 << 20
#: What an hour of a tier takes. Tiers of closed days are larger.
_KEPT_AT_ONCE_BYTES = 1 << 20
#: Estimated size of a footer per row group, and the fraction (1/8) of the memory for footers.
_FOOTER_BYTES_PER_GROUP = 8_192
_FOOTER_SHARE = 8
#: A segment with more row groups than this is not asked whether all of them are in memory.
_FEW_GROUPS = 8


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
    #: The size of the object.
    size_bytes: int


class OpenedFile:
    """A samples file. It is opened only when something must be read that is not in memory."""

    def __init__(
        self,
        key: str,
        file: pq.ParquetFile | Callable[[], pq.ParquetFile],
        footer: Footer,
        decoded_groups: ByteLru[DecodedGroup],
    ) -> None:
        """`file` is open already, or is opened by a call."""
        self._key = key
        self._given = file
        self._file = file if isinstance(file, pq.ParquetFile) else None
        self._decoded = decoded_groups
        self.footer = footer

    @property
    def groups(self) -> list[RowGroup]:
        return self.footer.groups

    @property
    def file(self) -> pq.ParquetFile:
        if self._file is None:
            assert not isinstance(self._given, pq.ParquetFile)
            self._file = self._given()
        return self._file

    def read(self, group: RowGroup, need: Need | None = None) -> DecodedGroup:
        """The samples of one row group, with what a need asks of a tier. Those read often come from memory.

        Small ones of a tier are kept at once: they hold the series of all rules, and the next panel of a dashboard
        reads others of them, as does the other side of a division.
        """
        name = _group_name(self._key, group, need)
        found = self._decoded.get(name)
        if found is None:
            columns = group.columns(need)
            found = decoded(self.file.read_row_group(group.number, columns=columns, use_threads=False), need)
            if need is not None and found.size_bytes <= _KEPT_AT_ONCE_BYTES:
                self._decoded.put(name, found, found.size_bytes)
            else:
                self._decoded.offer(name, found, found.size_bytes)
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _group_name(key: str, group: RowGroup, need: Need | None) -> str:
    return f"{key}#{group.number}" if need is None else f"{key}#{group.number}#{need.value}"


def _file_of(source: Source, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    # Pages without a checksum, of earlier releases, are read unchecked.
    return pq.ParquetFile(source, memory_map=True, metadata=metadata, page_checksum_verification=True)


def _read_series(source: Source) -> SeriesTable:
    """The series table, with the label dictionaries of the file. Building new ones would double the time."""
    with pq.ParquetFile(source, read_dictionary=_LABELS, page_checksum_verification=True) as file:
        dictionaries = _with_dictionary(file.metadata)
        if len(dictionaries) == len(_LABELS):
            return SeriesTable.of(file.read(use_threads=False))
        metadata = file.metadata
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
        #: The series tables in memory, by what their objects hold.
        self._alike: weakref.WeakValueDictionary[bytes, SeriesTable] = weakref.WeakValueDictionary()

    @property
    def memory(self) -> ByteLru[Any]:
        """The cache of decoded samples, for what else is made of them."""
        return self._decoded

    def forget(self) -> None:
        """Empty the caches in memory."""
        self._decoded.clear()
        self._tables.clear()
        self._footers.clear()
        INTERNED.clear()

    def is_local(self, keys: Sequence[str]) -> bool:
        """Whether reading these objects needs no fetch from the store."""
        return all(map(self._cache.has, keys))

    @property
    def is_remote(self) -> bool:
        """Whether a fetch waits for another machine."""
        return self._cache.is_remote

    def fetch(self, keys: Sequence[str]) -> SampleTally:
        """Fetch what is not cached, and return what it cost. What cannot be fetched fails when it is read."""
        tally = SampleTally()
        started = time.perf_counter()
        with suppress(LakeError):
            for key in keys:
                if not self._cache.has(key):
                    found = self._cache.get(key)
                    # Whoever reads it will call it a hit.
                    tally.hits, tally.misses = tally.hits - (not found.hit), tally.misses + (not found.hit)
        tally.fetch_s = time.perf_counter() - started
        return tally

    def series(self, key: str, tally: SampleTally) -> SeriesTable:
        """The decoded series table, cached in memory."""
        table = self._tables.get(key)
        if table is not None:
            tally.hits += 1
            return table
        table = self._reading(key, tally, self._series_of)
        self._tables.put(key, table, table.size_bytes)
        return table

    def _series_of(self, found: Cached) -> SeriesTable:
        """The table of an object. Hours in which the same series were active have equal objects, which share one."""
        if found.size_bytes > _ALIKE_BYTES:
            return _read_series(found.source)
        content = found.content if isinstance(found.content, bytes) else found.content.read_bytes()
        digest = xxhash.xxh3_128_digest(content)
        table = self._alike.get(digest)
        if table is None:
            table = _read_series(pa.BufferReader(content))
            if not table.classic.any():
                # Which histograms have bounds is noted in the table, and is not the same in all samples of a series.
                self._alike[digest] = table
        return table

    def decoded_rows(self, keys: Sequence[str], need: Need | None) -> int | None:
        """The number of rows of a segment that is in memory as a whole; None if anything must be read or decoded."""
        samples_key, series_key = keys
        footer = self._footers.get(samples_key)
        if footer is None or len(footer.groups) > _FEW_GROUPS or not self._tables.has(series_key):
            return None
        if not all(self._decoded.has(_group_name(samples_key, group, need)) for group in footer.groups):
            return None
        return sum(group.rows for group in footer.groups)

    @contextmanager
    def samples(self, key: str, tally: SampleTally) -> Iterator[OpenedFile]:
        """The opened samples file. Reads from it may still find bad bytes: see `again_if_bad`.

        While the footer is in memory, the file on the disk is not touched before something must be read from it.
        """
        footer = self._footers.get(key)
        if footer is None:
            opened = self._reading(key, tally, lambda found: self._opened(key, found))
        else:
            tally.hits, tally.read_bytes = tally.hits + 1, tally.read_bytes + footer.size_bytes
            metadata = footer.metadata
            opened = OpenedFile(key, lambda: self._file(key, metadata, tally), footer, self._decoded)
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

    def _opened(self, key: str, found: Cached) -> OpenedFile:
        file = _file_of(found.source)
        footer = Footer(file.metadata, row_groups(file.metadata), found.size_bytes)
        self._footers.put(key, footer, _FOOTER_BYTES_PER_GROUP * max(1, len(footer.groups)))
        return OpenedFile(key, file, footer, self._decoded)

    def _file(self, key: str, metadata: pq.FileMetaData, tally: SampleTally) -> pq.ParquetFile:
        """The file of a known footer. If it was evicted or damaged since, `again_if_bad` asks again."""
        started = time.perf_counter()
        found = self._cache.get(key)
        tally.fetch_s += time.perf_counter() - started
        if not found.hit:
            tally.hits, tally.misses = tally.hits - 1, tally.misses + 1
        return _file_of(found.source, metadata)

    def _reading(self, key: str, tally: SampleTally, read: Callable[[Cached], T]) -> T:
        for fresh in (False, True):
            started = time.perf_counter()
            found = self._cache.get(key)
            tally.fetch_s += time.perf_counter() - started
            tally.hits, tally.misses = tally.hits + found.hit, tally.misses + (not found.hit)
            tally.read_bytes += found.size_bytes
            try:
                return read(found)
            except BAD_BYTES:
                # Evicted after `get`, or damaged on the disk. Either way the store has the object.
                self._cache.discard(key)
                if fresh:
                    raise
        raise Bug("cannot reach this line")
