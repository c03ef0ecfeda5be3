"""The id filters of segments, kept in memory: which segments may hold an id is known without opening one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

from lakerunner.index.database import Database
from lakerunner.index.lookup import load_id_filters
from lakerunner.index.segments import ref
from lakerunner.model.id_filter import may_hold, probe_of
from lakerunner.model.segment import Segment
from lakerunner.runtime.byte_lru import ByteLru

#: Bytes of filters that a process keeps: at 12 bits per trace, those of some 45 million traces.
_KEPT_BYTES = 64 << 20
#: What an entry weighs beside its filter.
_ENTRY_BYTES = 128
#: Filters read in one statement.
_AT_ONCE = 1_000


class IdFilters:
    """Reads the filter of a segment once; segments are immutable. Safe to share between threads."""

    def __init__(self, database: Database, kept_bytes: int = _KEPT_BYTES) -> None:
        self._database = database
        self._kept: ByteLru[bytes] = ByteLru(kept_bytes)
        self._lock = threading.Lock()

    def holding(self, segments: Sequence[Segment], wanted: str) -> list[Segment]:
        """Return the segments that may hold the id, in their order."""
        filters = {each.segment_id: self._kept.get(each.segment_id) for each in segments}
        missing = [each for each in segments if filters[each.segment_id] is None]
        for start in range(0, len(missing), _AT_ONCE):
            filters |= self._load(missing[start : start + _AT_ONCE])
        probe = probe_of(wanted)
        return [each for each in segments if may_hold(filters[each.segment_id] or b"", probe)]

    def _load(self, segments: Sequence[Segment]) -> dict[uuid.UUID, bytes]:
        refs = [ref(each) for each in segments]
        found = self._database.read(lambda tx: load_id_filters(tx, refs))
        for segment_id, made in found.items():
            self._kept.put(segment_id, made, len(made) + _ENTRY_BYTES)
        return found
