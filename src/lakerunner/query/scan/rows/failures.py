"""What a scan does about segments that it cannot read: fresh bytes once, and then it continues without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lakerunner.model.errors import LakeError
from lakerunner.query.metrics import SCAN_ERRORS
from lakerunner.query.scan.rows.opened import BadSegment, RowsOpener, unreadable
from lakerunner.query.scan.rows.request import RowSegment, RowTally

#: Called with a segment that could not be read. The scan continues without it, unless the call raises.
OnError: TypeAlias = Callable[[RowSegment, LakeError], None]


def raise_error(segment: RowSegment, error: LakeError) -> None:
    """The default: an unreadable segment ends the scan."""
    raise error


class Failures:
    """The segments of one scan whose bytes were bad, or that could not be read. For one thread."""

    def __init__(self, opener: RowsOpener, tally: RowTally, on_error: OnError) -> None:
        self._opener = opener
        self._tally = tally
        self._on_error = on_error
        #: Segments whose bytes were discarded and fetched again.
        self._refreshed: set[str] = set()

    def refreshed(self, bad: BadSegment) -> bool:
        """Discard the bytes of the segment. False if fresh bytes were bad too, and the segment is left out."""
        self._opener.discard(bad.segment.key)
        if bad.segment.key in self._refreshed:
            self.leave_out(bad.segment, bad)
            return False
        self._refreshed.add(bad.segment.key)
        return True

    def is_refreshed(self, segment: RowSegment) -> bool:
        return segment.key in self._refreshed

    def leave_out(self, segment: RowSegment, error: LakeError) -> None:
        is_bad = isinstance(error, BadSegment)
        SCAN_ERRORS.labels("bad_bytes" if is_bad else error.code).inc()
        error = unreadable(error) if is_bad else error
        self._on_error(segment, error)
        self._tally.failed[segment.segment_id] = str(error)
