"""The filters of a segment without its rows: the bytes that prove what it does not hold, apart from the object.

They are the footer, with the bounds of every row group, the needle filters and the bloom filters: a few percent of the
object. Who holds them decides about a condition as a scan does before it reads values, with the same functions.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing

import orjson

from lakerunner.model.errors import BadInput, LakeError
from lakerunner.query.scan.rows.byte_source import Range
from lakerunner.query.scan.rows.conditions.predicate import Predicate
from lakerunner.query.scan.rows.opened import BAD_BYTES, END_BYTES, Footer, RowsOpener
from lakerunner.query.scan.rows.request import RowSegment, RowTally
from lakerunner.query.scan.rows.row_group.facts import GroupFacts
from lakerunner.query.scan.rows.row_group.match_rows import left_of
from lakerunner.store.needles import BLOCK_BYTES

_HEAD = struct.Struct("<I")


def packed_filters(opener: RowsOpener, segment: RowSegment) -> bytes:
    """The filters of a segment, packed to travel: its footer last."""
    tally = RowTally()
    with closing(opener.open(segment, tally)) as opened:
        footer = opened.footer
    with closing(opener.source(segment, tally)) as source:
        tail_bytes = len(footer.body) + END_BYTES
        ranges = [*_filter_ranges(footer), (source.size_bytes - tail_bytes, tail_bytes)]
        bodies = source.read(ranges, tally)
    head = orjson.dumps(ranges)
    return b"".join((_HEAD.pack(len(head)), head, *bodies))


def _filter_ranges(footer: Footer) -> list[Range]:
    places = [place for of_column in footer.needles.values() for place in of_column if place is not None]
    ranges = [(place.offset, BLOCK_BYTES << place.log_blocks) for place in places]
    metadata = footer.metadata
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for leaf in range(metadata.num_columns):
            chunk = group.column(leaf)
            if chunk.bloom_filter_offset and chunk.bloom_filter_length:
                ranges.append((chunk.bloom_filter_offset, chunk.bloom_filter_length))
    return sorted(set(ranges))


class SegmentFilters:
    """The filters of one segment in memory. Safe to share between threads."""

    def __init__(self, packed: bytes) -> None:
        try:
            (head_bytes,) = _HEAD.unpack_from(packed)
            begin = _HEAD.size + head_bytes
            ranges = [(int(start), int(length)) for start, length in orjson.loads(packed[_HEAD.size : begin])]
            self._held = _HeldBytes(ranges, packed, begin)
            self._footer = Footer.of_tail(self._held.last)
        except (*BAD_BYTES, TypeError) as reason:
            raise BadInput(f"cannot read the filters of a segment: {reason!r}") from None
        self.size_bytes = len(packed) + self._footer.size_bytes

    def excluded(self, segment: RowSegment, condition: Predicate) -> dict[str, int] | None:
        """What excludes the row groups of the segment, and how many each; None if one may satisfy the condition."""
        found: dict[str, int] = {}
        try:
            for number in range(self._footer.metadata.num_row_groups):
                by = left_of(_HeldGroup(segment, self._footer, number, self._held), condition).excluded_by
                if not by:
                    return None
                found[by] = found.get(by, 0) + 1
        except LakeError:
            # Something is not held, or is damaged. A worker has the whole object, and decides.
            return None
        return found


class _HeldBytes:
    """Some ranges of an object, in memory, in the order of their places."""

    def __init__(self, ranges: Sequence[Range], packed: bytes, begin: int) -> None:
        self._ranges = ranges
        self._starts = [start for start, _ in ranges]
        self._bodies: list[bytes] = []
        for _, length in ranges:
            self._bodies.append(packed[begin : begin + length])
            begin += length
        if begin != len(packed) or self._starts != sorted(self._starts):
            raise ValueError("the ranges do not fit the bytes")

    @property
    def last(self) -> bytes:
        return self._bodies[-1]

    def piece(self, start: int, length: int) -> bytes:
        place = bisect_right(self._starts, start) - 1
        if place < 0 or start + length > sum(self._ranges[place]):
            raise ValueError("it is not held")
        at = start - self._starts[place]
        return self._bodies[place][at : at + length]


class _HeldGroup(GroupFacts):
    def __init__(self, segment: RowSegment, footer: Footer, number: int, held: _HeldBytes) -> None:
        super().__init__(segment, footer, number)
        self._held = held

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        found: list[bytes] = self.guarded(lambda: [self._held.piece(*each) for each in ranges])
        return found
