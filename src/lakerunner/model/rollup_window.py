"""A window of a rollup: a stretch of time of one org whose raw rows become the segments of one tier, at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.model.ids import hashed_id
from lakerunner.model.segment import RAW_TIER_S
from lakerunner.model.signals import METRICS
from lakerunner.model.signals.tiers import ROLLED_TIERS_S
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, NS_PER_S, TimeRange

#: The tier that tiers with windows of a day are made of.
DAY_SOURCE_TIER_S = 300
#: How long after its end a window waits for rows that come a little late.
SETTLE_NS = 300 * NS_PER_S
#: How long after its end a day is closed: few rows still come, so its windows are made and stored together.
CLOSED_AFTER_NS = 12 * NS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Window:
    """Open at `start_ns` and closed at `end_ns`, as buckets are."""

    org_id: uuid.UUID
    tier_s: int
    start_ns: int
    end_ns: int
    #: Counts the changes of the window's raw rows; 0 when it is not known.
    generation: int = 0
    #: Whether its raw rows changed since it was made. A clean window is joined with its neighbours.
    dirty: bool = True

    @property
    def window_id(self) -> uuid.UUID:
        """Another one after each change: the work on it is other work."""
        numbers = (self.tier_s, self.start_ns, self.generation, *(() if self.dirty else (0,)))
        return hashed_id(self.org_id.bytes, *(str(number).encode() for number in numbers))

    @property
    def day(self) -> int:
        """Since the epoch."""
        return self.start_ns // NS_PER_DAY

    @property
    def signal(self) -> str:
        return METRICS.name

    @property
    def collector(self) -> str:
        return tier_collector(self.tier_s)

    @property
    def row_range(self) -> TimeRange:
        """The half-open range of times of rows in it, which are whole milliseconds."""
        return TimeRange(self.start_ns + NS_PER_MS, self.end_ns + NS_PER_MS)


def tier_collector(tier_s: int) -> str:
    """The name under which the segments of a tier stand, in place of the collector's: a series may have several.

    >>> tier_collector(60)
    'rollup-60s'
    """
    return f"rollup-{tier_s}s"


def width_ns(tier_s: int) -> int:
    """How wide the windows of a tier are at first. An hour of a fine tier is as large as a day of a coarse one.

    >>> width_ns(300) == NS_PER_HOUR, width_ns(3600) == NS_PER_DAY
    (True, True)
    """
    return NS_PER_HOUR if tier_s <= DAY_SOURCE_TIER_S else NS_PER_DAY


def source_tier_s(tier_s: int) -> int:
    """What the tier's windows are made of."""
    return RAW_TIER_S if tier_s <= DAY_SOURCE_TIER_S else DAY_SOURCE_TIER_S


def is_closed(day: int, now_ns: int) -> bool:
    """Whether the day has been over for so long that few rows still come.

    >>> is_closed(1, 2 * NS_PER_DAY), is_closed(1, 2 * NS_PER_DAY + CLOSED_AFTER_NS)
    (False, True)
    """
    return (day + 1) * NS_PER_DAY + CLOSED_AFTER_NS <= now_ns


def windows_of_day(org_id: uuid.UUID, day: int) -> Iterator[Window]:
    """All windows of all tiers of a day since the epoch."""
    for tier_s in ROLLED_TIERS_S:
        width = width_ns(tier_s)
        for start_ns in range(day * NS_PER_DAY, (day + 1) * NS_PER_DAY, width):
            yield Window(org_id, tier_s, start_ns, start_ns + width)


def days_of_rows(rows: TimeRange) -> range:
    """The days since the epoch whose windows have rows of the range. A row at midnight belongs to the day before.

    >>> days_of_rows(TimeRange(NS_PER_DAY, NS_PER_DAY + NS_PER_MS))
    range(0, 1)
    """
    return range((rows.start_ns - 1) // NS_PER_DAY, (last_row_ns(rows) - 1) // NS_PER_DAY + 1)


def last_row_ns(rows: TimeRange) -> int:
    """The time of the last possible row in the range."""
    return (rows.end_ns - 1) // NS_PER_MS * NS_PER_MS


def window_starts(tier_s: int, rows: TimeRange) -> range:
    """Where the windows begin that have rows of the range."""
    width = width_ns(tier_s)
    return range((rows.start_ns - 1) // width * width, last_row_ns(rows), width)
