"""Which segments are merged with each other, and when: by window of event time, count, bytes and age.

A window is the smallest of hour, day, month, year and all time that holds all rows of a segment. Only segments of one
window are merged, so a merged segment is never wider than the window. The hours of a day that is over for long are one
window: its segments are merged across hours.

While a window is open, segments of one level are merged when there are `compact_segments` of them, or when they reach
the target size. After it closed, whatever is left is merged, smallest first, as long as a segment is not many times
larger than all smaller ones together: a late row must not rewrite a gigabyte.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_S
from lakerunner.runtime.settings import PipelineSettings

#: A segment counts as at least so large: below, the work per file exceeds that of its rows.
_SMALL_BYTES = 1 << 20
#: Estimated ratio of what a task holds of an open input to the input's size, and the most that it holds: one row group.
_EXPANSION, _GROUP_BYTES = 8, 128 << 20
#: Estimated bytes that a task may hold of all its inputs. At least two inputs are always merged.
_OPEN_BYTES = 1 << 30


class Unit(enum.IntEnum):
    """Widths of windows, from narrow to wide."""

    HOUR = 1
    DAY = 2
    MONTH = 3
    YEAR = 4
    EVER = 5


class Window(NamedTuple):
    """The segments of one org and signal that may be merged with each other."""

    collector: str
    #: Dated and undated segments lie in different partitions of the index.
    is_dated: bool
    unit: Unit
    #: Half open. All rows of a segment of the window lie within.
    start_ns: int
    end_ns: int
    #: The rules that evaluated the rows: a merged segment has one answer to what its rows were evaluated with.
    rules_version: int = 0

    def is_over(self, now_ns: int, settings: PipelineSettings) -> bool:
        """Whether few rows are still to come. Scattered times have no end to wait for."""
        return self.unit > Unit.DAY or self.end_ns + settings.compact_age_s * NS_PER_S <= now_ns


def window_of(segment: Segment, now_ns: int, settings: PipelineSettings) -> Window:
    """The window of a segment at this time."""
    first, last = segment.time_range.start_ns, segment.time_range.end_ns - 1
    unit, start_ns, end_ns = _narrowest(first, last)
    if unit is Unit.HOUR:
        day_ns = first // NS_PER_DAY * NS_PER_DAY
        if day_ns + NS_PER_DAY + settings.compact_day_age_s * NS_PER_S <= now_ns:
            unit, start_ns, end_ns = Unit.DAY, day_ns, day_ns + NS_PER_DAY
    return Window(segment.collector, segment.is_dated, unit, start_ns, end_ns, segment.rules_version)


def _narrowest(first_ns: int, last_ns: int) -> tuple[Unit, int, int]:
    for unit, width_ns in ((Unit.HOUR, NS_PER_HOUR), (Unit.DAY, NS_PER_DAY)):
        if first_ns // width_ns == last_ns // width_ns:
            start_ns = first_ns // width_ns * width_ns
            return unit, start_ns, start_ns + width_ns
    for unit, name in ((Unit.MONTH, "M"), (Unit.YEAR, "Y")):
        start, end = (np.datetime64(ns // NS_PER_S, "s").astype(f"datetime64[{name}]") for ns in (first_ns, last_ns))
        if start == end:
            bounds = (np.datetime64(each, "s").astype(np.int64) for each in (start, start + 1))
            low, high = (int(each) * NS_PER_S for each in bounds)
            return unit, low, high
    return Unit.EVER, 0, 1 << 63


def is_candidate(segment: Segment, settings: PipelineSettings) -> bool:
    """Whether the segment may still grow. Coarser tiers belong to their rollup."""
    return segment.tier_s == RAW_TIER_S and segment.size_bytes < settings.compact_min_bytes


def bundles(
    segments: Iterable[Segment], window: Window, now_ns: int, settings: PipelineSettings
) -> list[list[Segment]]:  # fmt: skip
    """The sets of a window's segments that should be merged now, each in order of time."""
    candidates = [each for each in segments if is_candidate(each, settings)]
    if window.is_over(now_ns, settings):
        found = _settled(candidates, settings)
    else:
        found = [
            bundle for _, of_level in sorted(_by_level(candidates).items()) for bundle in _grown(of_level, settings)
        ]
    return [sorted(bundle, key=_in_time) for bundle in found]


def _by_level(segments: Iterable[Segment]) -> dict[int, list[Segment]]:
    levels: defaultdict[int, list[Segment]] = defaultdict(list)
    for each in segments:
        levels[each.level].append(each)
    return levels


def _grown(segments: Sequence[Segment], settings: PipelineSettings) -> list[list[Segment]]:
    """Bundles of one level that have enough segments or bytes. What is left waits for more."""
    full = []
    for bundle in _packed(sorted(segments, key=_in_time), settings):
        enough = len(bundle) >= settings.compact_segments or _bytes(bundle) >= settings.compact_min_bytes
        if len(bundle) > 1 and enough:
            full.append(bundle)
    return full


def _settled(segments: Sequence[Segment], settings: PipelineSettings) -> list[list[Segment]]:
    """Bundles of what is left in a window that is over, without rewriting much for little."""
    runs: list[list[Segment]] = []
    total = 0
    for each in sorted(segments, key=lambda one: (one.size_bytes, _in_time(one))):
        if not runs or each.size_bytes > settings.compact_segments * max(total, _SMALL_BYTES):
            runs.append([])
            total = 0
        runs[-1].append(each)
        total += max(each.size_bytes, _SMALL_BYTES)
    return [
        bundle for run in runs for bundle in _packed(sorted(run, key=_in_time), settings) if len(bundle) > 1
    ]  # fmt: skip


def _packed(segments: Iterable[Segment], settings: PipelineSettings) -> list[list[Segment]]:
    """Neighbours in time, as many as one task may merge into one segment."""
    packed: list[_Bundle] = []
    for each in segments:
        if not packed or not packed[-1].fits(each, settings):
            packed.append(_Bundle([]))
        packed[-1].segments.append(each)
    return [bundle.segments for bundle in packed]


@dataclass(frozen=True, slots=True)
class _Bundle:
    segments: list[Segment]

    def fits(self, more: Segment, settings: PipelineSettings) -> bool:
        together = [*self.segments, more]
        if len(together) > settings.compact_max_inputs or _bytes(together) > settings.compact_target_bytes:
            return False
        return len(together) <= 2 or sum(map(_open_bytes, together)) <= _OPEN_BYTES


def _open_bytes(segment: Segment) -> int:
    return min(_GROUP_BYTES, _EXPANSION * segment.size_bytes)


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(each.size_bytes for each in segments)


def _in_time(segment: Segment) -> tuple[int, int]:
    """The order in which queries read segments: of two equal samples, that of the earlier segment counts."""
    return segment.time_range.start_ns, segment.segment_id.int
