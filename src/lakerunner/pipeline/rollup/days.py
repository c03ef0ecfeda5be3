"""Which windows share a work item: the tiers of one stretch of time, and of a closed day as much as one task may do.

Windows of an hour keep tiers fresh. Of a closed day they would be many small segments, and much work for few rows. So
neighbours of a closed day become one window: dirty ones when they are made, clean ones when nothing of the day is left
to be made. An item that has several neighbours of one tier joins them.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakerunner.index.database import Connection
from lakerunner.index.joined_windows import DayWindow, lock_day, settle
from lakerunner.index.segments import live_segments
from lakerunner.model.rollup_window import DAY_SOURCE_TIER_S, Window, is_closed
from lakerunner.model.segment import RAW_TIER_S, Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.time import NS_PER_DAY, NS_PER_MS, TimeRange
from lakerunner.runtime.settings import PipelineSettings

#: Raw samples per row of a tier, about: windows with this many times `rollup_segment_rows` samples are made at once.
_SAMPLES_PER_ROW = 4


@dataclass(slots=True)
class Stretch:
    """The windows of some tiers that begin and end together, and how many rows they have."""

    start_ns: int
    end_ns: int
    windows: list[Window] = field(default_factory=list)
    rows: float = 0.0

    @property
    def tiers_s(self) -> list[int]:
        return sorted({window.tier_s for window in self.windows})


def gather(tx: Connection, inputs: Sequence[Window], settings: PipelineSettings) -> list[list[Window]]:
    """The windows of each item. Of an open day they are those that were announced; a closed day is looked at whole."""
    now_ns = time.time_ns()
    chosen: list[list[Window]] = []
    days: defaultdict[tuple[uuid.UUID, int], list[Window]] = defaultdict(list)
    for window in inputs:
        days[window.org_id, window.day].append(window)
    for (org_id, day), windows in days.items():
        if is_closed(day, now_ns):
            chosen += _of_closed_day(tx, org_id, lock_day(tx, org_id, day), settings)
        else:
            chosen += [stretch.windows for stretch in stretches(each for each in windows if each.dirty)]
    return chosen


def _of_closed_day(
    tx: Connection, org_id: uuid.UUID, windows: Sequence[DayWindow], settings: PipelineSettings
) -> list[list[Window]]:
    unmade = [each for each in windows if each.window.dirty and not each.sealed]
    if unmade:
        return _to_make(tx, org_id, unmade, settings)
    return _to_join(tx, org_id, windows, settings)


def _to_make(
    tx: Connection, org_id: uuid.UUID, unmade: Sequence[DayWindow], settings: PipelineSettings
) -> list[list[Window]]:  # fmt: skip
    """Dirty neighbours together. Coarse tiers with them if these are the whole day, else once its hours are made."""
    free = [each.window for each in unmade if each.is_free]
    fine = stretches(window for window in free if window.tier_s <= DAY_SOURCE_TIER_S)
    coarse = [window for window in free if window.tier_s > DAY_SOURCE_TIER_S]
    if not any(each.window.tier_s == DAY_SOURCE_TIER_S for each in unmade):
        return [*(stretch.windows for stretch in fine), *([coarse] if coarse else [])]
    _count(fine, _segments(tx, org_id, fine, RAW_TIER_S))
    runs = neighbours(fine, settings.rollup_segment_rows * _SAMPLES_PER_ROW)
    items = [[window for stretch in run for window in stretch.windows] for run in runs]
    for item in items:
        source = [window for window in item if window.tier_s == DAY_SOURCE_TIER_S]
        if source and max(w.end_ns for w in source) - min(w.start_ns for w in source) == NS_PER_DAY:
            item += coarse
    return items


def _to_join(
    tx: Connection, org_id: uuid.UUID, windows: Sequence[DayWindow], settings: PipelineSettings
) -> list[list[Window]]:  # fmt: skip
    """Clean neighbours, if all of the day are free."""
    fine = [each for each in windows if each.window.tier_s <= DAY_SOURCE_TIER_S and not each.window.dirty]
    unsettled = [each for each in fine if not each.settled]
    if not unsettled or not all(each.is_free for each in fine):
        return []
    runs: list[list[Stretch]] = []
    for sealed in (False, True):
        found = stretches(each.window for each in unsettled if each.sealed is sealed)
        for tier_s in sorted({tier_s for stretch in found for tier_s in stretch.tiers_s}):
            _count([each for each in found if tier_s in each.tiers_s], _segments(tx, org_id, found, tier_s))
        runs += neighbours(found, settings.rollup_segment_rows)
    settle(tx, [window for run in runs if len(run) == 1 for window in run[0].windows])
    return [[window for stretch in run for window in stretch.windows] for run in runs if len(run) > 1]


def stretches(windows: Iterable[Window]) -> list[Stretch]:
    """The windows by their time, in order."""
    found: dict[tuple[int, int], Stretch] = {}
    for window in windows:
        key = window.start_ns, window.end_ns
        found.setdefault(key, Stretch(*key)).windows.append(window)
    return [found[key] for key in sorted(found)]


def neighbours(found: Sequence[Stretch], max_rows: float) -> list[list[Stretch]]:
    """Runs of adjacent stretches of the same tiers, each of at most this many rows or a single stretch."""
    runs: list[list[Stretch]] = []
    last: dict[tuple[int, ...], list[Stretch]] = {}
    for stretch in found:
        kind = tuple(stretch.tiers_s)
        run = last.get(kind)
        if run and run[-1].end_ns == stretch.start_ns and sum(each.rows for each in run) + stretch.rows <= max_rows:
            run.append(stretch)
        else:
            last[kind] = [stretch]
            runs.append(last[kind])
    return runs


def _segments(tx: Connection, org_id: uuid.UUID, found: Sequence[Stretch], tier_s: int) -> list[Segment]:
    if not found:
        return []
    rows = TimeRange(min(each.start_ns for each in found) + NS_PER_MS, max(each.end_ns for each in found) + NS_PER_MS)
    return live_segments(tx, org_id, METRICS.name, rows, tier_s)


def _count(found: Sequence[Stretch], segments: Sequence[Segment]) -> None:
    """Estimate the rows of each stretch, as if those of a segment were spread evenly over its time."""
    for stretch in found:
        rows = 0.0
        for segment in segments:
            times = segment.time_range
            start_ns, end_ns = stretch.start_ns + NS_PER_MS, stretch.end_ns + NS_PER_MS
            common_ns = max(0, min(times.end_ns, end_ns) - max(times.start_ns, start_ns))
            rows += segment.row_count * common_ns / (times.end_ns - times.start_ns)
        stretch.rows = max(stretch.rows, rows)
