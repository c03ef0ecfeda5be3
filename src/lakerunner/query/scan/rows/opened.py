"""Opens segments for row scans. Footers and decoded columns stay in memory; bytes come in ranges or from the disk."""

from __future__ import annotations

import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.formats.attributes import KEYS_METADATA, OVERFLOW
from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.model.labels import attribute_column
from lakerunner.query.scan.object_cache import DAMAGED_HINT, ObjectCache
from lakerunner.query.scan.rows.byte_source import ByteSource, LocalBytes, Range, RangedBytes
from lakerunner.query.scan.rows.conditions.decided import Condition, Conditions
from lakerunner.query.scan.rows.conditions.predicate import LEVELS
from lakerunner.query.scan.rows.parquet.page_index import index_places
from lakerunner.query.scan.rows.request import RowScan, RowSegment, RowTally
from lakerunner.runtime.byte_lru import ByteLru
from lakerunner.store.nanos import SUFFIX
from lakerunner.store.needles import NeedleFilter, filters_of
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.runs import Runs, runs_of

#: What reading raises on bytes that are not valid Parquet.
BAD_BYTES = (pa.ArrowException, OSError, ValueError, IndexError, KeyError, struct.error)
#: Bytes read from the end of an object in the first request: most footers fit.
_TAIL_BYTES = 8 << 10
#: The length of the footer, and the magic, at the end of the object.
END_BYTES = 8
_MAGIC = b"PAR1"
#: Objects up to this size are fetched whole: requests for ranges would cost more than the bytes they save.
SMALL_BYTES = 512 << 10
#: Once this share of an object was fetched in ranges, the next scan fetches it whole into the disk cache.
_WHOLE_SHARE = 0.5
_MAX_KNOWN_OBJECTS = 20_000
#: Size of decoded metadata per byte of its serialised form.
_FOOTER_FACTOR = 8
_PREFIXES = tuple(attribute_column(level, "") for level in LEVELS)

_NO_KEYS, _ANY_KEYS = ("\U0010ffff", ""), ("", "\U0010ffff")


class BadSegment(LakeError):
    """A segment's bytes are bad. The scan discards them and reads the segment once more."""

    def __init__(self, segment: RowSegment, reason: BaseException) -> None:
        super().__init__(f"cannot read segment {segment.segment_id}: {type(reason).__name__}: {reason}")
        self.segment = segment


def is_attribute(name: str) -> bool:
    """Whether the name may be an attribute's, whose values may be in the overflow."""
    return name.startswith(_PREFIXES)


@dataclass(frozen=True)
class Footer:
    """The schema of a segment, and the offsets of everything in its object."""

    body: bytes
    metadata: pq.FileMetaData

    @classmethod
    def read(cls, source: ByteSource, tally: RowTally) -> Footer:
        size = source.size_bytes
        first = min(size, _TAIL_BYTES)
        (tail,) = source.read([(size - first, first)], tally)
        if len(tail) < END_BYTES or tail[-4:] != _MAGIC:
            raise ValueError("it does not end as a Parquet file does")
        length = int.from_bytes(tail[-8:-4], "little")
        if length + END_BYTES > size:
            raise ValueError("its footer is longer than the object")
        if length + END_BYTES > len(tail):
            missing = length + END_BYTES - len(tail)
            tail = source.read([(size - len(tail) - missing, missing)], tally)[0] + tail
        return cls.of_tail(tail[-END_BYTES - length :])

    @classmethod
    def of_tail(cls, tail: bytes) -> Footer:
        """From the end of the object, which begins with the footer."""
        return cls(tail[:-END_BYTES], pq.read_metadata(pa.BufferReader(_MAGIC + tail)))

    @property
    def size_bytes(self) -> int:
        return len(self.body) * _FOOTER_FACTOR

    @cached_property
    def fields(self) -> dict[str, pa.Field]:
        """The columns of the file, by name."""
        return {field.name: field for field in self.metadata.schema.to_arrow_schema()}

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """The numbers of the Parquet leaf columns of each column."""
        found: dict[str, list[int]] = {}
        schema = self.metadata.schema
        for number in range(self.metadata.num_columns):
            found.setdefault(schema.column(number).path.split(".", 1)[0], []).append(number)
        return found

    @cached_property
    def levels(self) -> list[tuple[bool, bool]]:
        """Of each leaf: whether it is a column of its own, and whether its values may be null."""
        found = [self.metadata.schema.column(number) for number in range(self.metadata.num_columns)]
        return [
            (each.max_repetition_level == 0 and each.max_definition_level <= 1, each.max_definition_level == 1)
            for each in found
        ]

    @cached_property
    def names(self) -> list[str]:
        """The columns that users see. Remainders of nanoseconds are part of their time columns."""
        return [name for name in self.fields if not self.is_remainder(name)]

    @cached_property
    def places(self) -> npt.NDArray[np.int64]:
        """Offset and length of the offset index and of the column index of every chunk."""
        metadata = self.metadata
        buffer = np.frombuffer(self.body, np.uint8)
        found: npt.NDArray[np.int64] = index_places(buffer, metadata.num_row_groups, metadata.num_columns)
        return found

    @cached_property
    def needles(self) -> dict[str, list[NeedleFilter | None]]:
        """The needle filters of each column, by row group."""
        return filters_of(self.metadata.metadata)

    @cached_property
    def runs(self) -> list[Runs | None]:
        """Where the rows of each value of the first sort column lie, by row group."""
        metadata = self.metadata
        return runs_of(
            metadata.metadata, [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        )

    @cached_property
    def attribute_keys(self) -> dict[bytes, bytes]:
        """The schema metadata that names the original keys of attribute columns; empty if the file has none."""
        document = (self.metadata.metadata or {}).get(KEYS_METADATA)
        return {} if document is None else {KEYS_METADATA: document}

    @cached_property
    def kept(self) -> dict[Any, Any]:
        """A cache of parsed page indexes and statistics, by the readers' own keys; small compared with the footer."""
        return {}

    def is_remainder(self, name: str) -> bool:
        return name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in self.fields

    def may_overflow(self, name: str, group: int | None = None) -> bool:
        """Whether a row of the group, or of any group, may have the name in its overflow, by the bounds of the keys."""
        if not is_attribute(name):
            return False
        chosen = self._overflow_keys if group is None else self._overflow_keys[group : group + 1]
        return any(low <= name <= high for low, high in chosen)

    @cached_property
    def _overflow_keys(self) -> list[tuple[str, str]]:
        """The smallest and largest key in each group's overflow; bounds that contain no key if it is empty."""
        if OVERFLOW not in self.fields:
            return [_NO_KEYS] * self.metadata.num_row_groups
        leaf = self.leaves[OVERFLOW][0]
        found = []
        for number in range(self.metadata.num_row_groups):
            statistics = self.metadata.row_group(number).column(leaf).statistics
            if statistics is None or not statistics.has_null_count:
                found.append(_ANY_KEYS)
            elif statistics.has_min_max:
                found.append((statistics.min, statistics.max))
            else:
                found.append(_NO_KEYS if statistics.num_values == 0 else _ANY_KEYS)
        return found


class RowsOpener:
    """Opens segments and caches their footers and ranges. One per process; safe to share between threads."""

    def __init__(
        self,
        store: ObjectStore,
        cache: ObjectCache,
        *,
        footer_bytes: int = 64 << 20,
        range_bytes: int = 64 << 20,
        decoded: ByteLru[Any] | None = None,
    ) -> None:
        self._store = store
        self._cache = cache
        self._footers: ByteLru[Footer] = ByteLru(footer_bytes)
        self._ranges: ByteLru[bytes] = ByteLru(range_bytes)
        self.decoded: ByteLru[Any] = ByteLru(0) if decoded is None else decoded
        self.conditions = Conditions(0 if decoded is None else footer_bytes)
        self._lock = threading.Lock()
        #: Key -> [bytes fetched in ranges, how often its bytes were discarded].
        self._known: OrderedDict[str, list[int]] = OrderedDict()

    def forget(self) -> None:
        """Empty what is kept in memory."""
        self._footers.clear()
        self._ranges.clear()
        self.decoded.clear()
        self.conditions.clear()

    def condition_of(self, scan: RowScan, segment: RowSegment) -> Condition:
        """What the scan asks of the segment's rows, whenever they were."""
        return self.conditions.condition(scan.of_segment(segment))

    def open(self, segment: RowSegment, tally: RowTally, *, whole: bool = False) -> OpenedSegment:
        """Open the segment. With `whole`, the object is fetched at once, because most of it will be read."""
        tally.segments_opened += 1
        generation = self._noted(segment.key)[1]
        name = (segment.key, generation)
        footer = self._footers.get(name)
        if footer is not None and self._cache.has(segment.key):
            # What is asked may be in memory: the file is opened when something is read.
            return OpenedSegment(self, segment, footer, None, generation)
        try:
            source = self.source(segment, tally, whole=whole)
            if footer is None:
                footer = Footer.read(source, tally)
                self._footers.put(name, footer, footer.size_bytes)
        except BAD_BYTES as reason:
            raise BadSegment(segment, reason) from reason
        return OpenedSegment(self, segment, footer, source, generation)

    def is_hot(self, segment: RowSegment) -> bool:
        """Whether the segment can be opened without waiting for the store."""
        return self._cache.has(segment.key) and self._footers.has((segment.key, self._noted(segment.key)[1]))

    def is_known(self, segment: RowSegment) -> bool:
        """Whether the segment was read before, so that what is read of it again is probably in memory."""
        return self._footers.has((segment.key, self._noted(segment.key)[1]))

    def discard(self, key: str) -> None:
        """Drop an object whose bytes turned out to be bad. The next scan reads it again."""
        self._cache.discard(key)
        with self._lock:
            self._noted(key)[1] += 1

    def fetched(self, key: str, size_bytes: int) -> None:
        with self._lock:
            self._noted(key)[0] += size_bytes

    def source(self, segment: RowSegment, tally: RowTally, *, whole: bool = False) -> ByteSource:
        """The object on the disk if it is cached, small or needed whole; else ranges from the store."""
        found = self._cache.find(segment.key)
        if found is None:
            size_bytes = segment.size_bytes or self._store.head(segment.key).size_bytes
            most = self._noted(segment.key)[0] > size_bytes * _WHOLE_SHARE
            if not whole and not most and size_bytes > SMALL_BYTES:
                return RangedBytes(self._store, segment.key, size_bytes, self._ranges, self._noted(segment.key)[1])
            started = time.perf_counter()
            found = self._cache.get(segment.key)
            tally.fetch_s += time.perf_counter() - started
        tally.hits, tally.misses = tally.hits + found.hit, tally.misses + (not found.hit)
        tally.read_bytes += 0 if found.hit else found.size_bytes
        return LocalBytes(found.content, found.size_bytes, counted=found.hit)

    def _noted(self, key: str) -> list[int]:
        noted = self._known.setdefault(key, [0, 0])
        if len(self._known) > _MAX_KNOWN_OBJECTS:
            self._known.popitem(last=False)
        return noted


class OpenedSegment:
    """A segment during a scan. Its file is opened on demand: a scan may have more segments than files may be open."""

    def __init__(
        self, opener: RowsOpener, segment: RowSegment, footer: Footer, source: ByteSource | None, generation: int
    ) -> None:
        self.opener = opener
        self.segment = segment
        self.footer = footer
        self.generation = generation
        self._source = source

    @property
    def is_local(self) -> bool:
        """Whether the object is on the disk of this machine."""
        return not isinstance(self._source, RangedBytes)

    def read(self, ranges: Sequence[Range], tally: RowTally) -> list[bytes]:
        if self._source is None:
            self._source = self.opener.source(self.segment, tally)
        return self._source.read(ranges, tally)

    def close(self) -> None:
        if isinstance(self._source, RangedBytes):
            self.opener.fetched(self.segment.key, self._source.fetched_bytes)
        if self._source is not None:
            self._source.close()
        self._source = None


def unreadable(bad: LakeError) -> Unavailable:
    """The error that a caller sees when fresh bytes are bad as well."""
    return Unavailable(bad.message, hint=DAMAGED_HINT)
