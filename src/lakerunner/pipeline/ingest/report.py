"""What ingest counts and logs of a committed item beyond every stage: quarantine, rows not stored as sent, skew."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from prometheus_client import Counter

from lakerunner.index.commit import ItemResult
from lakerunner.model.raw_object import RawObject
from lakerunner.model.row_report import Effect
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY
from lakerunner.pipeline.stage import Item
from lakerunner.runtime.telemetry import log

_ROWS = {
    Effect.REJECTED: Counter(
        "lakerunner_rows_rejected", "Rows refused while others of their object landed.", ["signal", "reason"]
    ),
    Effect.CHANGED: Counter(
        "lakerunner_rows_changed", "Rows stored with a value shortened, replaced or left out.", ["signal", "reason"]
    ),
}
_OBJECTS_QUARANTINED = Counter("lakerunner_objects_quarantined", "Raw objects that could not be read.", ["signal"])
_ROWS_SKEWED = Counter(
    "lakerunner_rows_skewed", "Rows that landed with an event time over a year ago or a day ahead.", ["signal"]
)

#: Older than this is a backfill or a clock that was never set; both deserve to be seen.
PAST_NS = 366 * NS_PER_DAY
#: A day ahead is no time zone and no drift.
FUTURE_NS = NS_PER_DAY


def report(item: Item[RawObject], result: ItemResult) -> None:
    """Count and log, once the result is visible."""
    about = {"org": str(item.org_id), "signal": item.signal, "item": str(item.item_id)}
    if skewed := skewed_rows(result.made, time.time_ns()):
        _ROWS_SKEWED.labels(item.signal).inc(skewed)
        log().warning("rows skewed", rows=skewed, **about)
    for each in result.objects:
        if each.quarantine_reason is not None:
            _OBJECTS_QUARANTINED.labels(item.signal).inc()
            log().warning("object quarantined", object=str(each.object_id), reason=each.quarantine_reason, **about)
    counts: dict[tuple[Effect, str], int] = defaultdict(int)
    for each in result.objects:
        for rows in each.reports:
            counts[rows.effect, rows.reason] += rows.rows
    for (effect, reason), count in counts.items():
        _ROWS[effect].labels(item.signal, reason).inc(count)
        log().warning(f"rows {effect}", reason=reason, rows=count, **about)


def skewed_rows(segments: Sequence[Segment], now_ns: int) -> int:
    """Rows of segments that lie wholly outside. A segment covers one hour of event time, so this is nearly exact."""
    return sum(
        segment.row_count
        for segment in segments
        if segment.time_range.end_ns <= now_ns - PAST_NS or segment.time_range.start_ns >= now_ns + FUTURE_NS
    )
