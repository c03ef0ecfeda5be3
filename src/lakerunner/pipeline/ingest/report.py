"""What ingest counts and logs of a committed item beyond every stage: quarantine, rows not stored as sent, skew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from prometheus_client import Counter

from lakerunner.index.commit import ItemResult
from lakerunner.model.raw_object import RawObject
from lakerunner.model.row_report import Effect
from lakerunner.pipeline.ingest.task import TaskResult
from lakerunner.pipeline.rule_report import report_rules
from lakerunner.pipeline.stage import Item
from lakerunner.runtime.metrics import GRAPH_HALVES, OBJECTS_QUARANTINED
from lakerunner.runtime.telemetry import log

_ROWS = {
    Effect.REJECTED: Counter(
        "lakerunner_rows_rejected", "Rows refused while others of their object landed.", ["signal", "reason"]
    ),
    Effect.CHANGED: Counter(
        "lakerunner_rows_changed", "Rows stored with a value shortened, replaced or left out.", ["signal", "reason"]
    ),
}
_OBJECTS_SUPERSEDED = Counter(
    "lakerunner_objects_superseded", "Raw objects that were overwritten before they were read.", ["signal"]
)
_ROWS_SKEWED = Counter(
    "lakerunner_rows_skewed", "Rows that landed with an event time over a year ago or a day ahead.", ["signal"]
)


def report(item: Item[RawObject], result: ItemResult, tasks: Sequence[TaskResult]) -> None:
    """Count and log, once the result is visible."""
    about = {"org": str(item.org_id), "signal": item.signal, "item": str(item.item_id)}
    report_rules([task.evaluation for task in tasks], about)
    if skewed := sum(task.skewed for task in tasks):
        _ROWS_SKEWED.labels(item.signal).inc(skewed)
        log().warning("rows skewed", rows=skewed, **about)
    if result.derivation is not None and result.derivation.taken.num_rows:
        external = result.derivation.external
        GRAPH_HALVES.labels("external").inc(external)
        GRAPH_HALVES.labels("paired_later").inc(result.derivation.taken.num_rows - external)
    for each in result.objects:
        if each.superseded:
            _OBJECTS_SUPERSEDED.labels(item.signal).inc()
            log().info("object superseded", object=str(each.object_id), **about)
        if each.quarantine_reason is not None:
            OBJECTS_QUARANTINED.labels(item.signal).inc()
            log().warning("object quarantined", object=str(each.object_id), reason=each.quarantine_reason, **about)
    counts: dict[tuple[Effect, str], int] = defaultdict(int)
    for each in result.objects:
        for rows in each.reports:
            counts[rows.effect, rows.reason] += rows.rows
    for (effect, reason), count in counts.items():
        _ROWS[effect].labels(item.signal, reason).inc(count)
        log().warning(f"rows {effect}", reason=reason, rows=count, **about)
