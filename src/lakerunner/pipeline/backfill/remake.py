"""Makes derived metrics again where rows were deleted on request: reads what is left, and replaces all samples at once.

The item of a window is created by the commit that ends it. A killed process therefore leaves no open item, and the
window is taken again after a pause. What a rule has not seen yet stays for the backfill: it is not counted here either.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prometheus_client import Counter

from lakerunner.bus.announce import segments_made
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.derivation import Derivation, next_slots
from lakerunner.index.derived_windows import CREATED_BY, Due, Remade, clashes, keep, take_due, why_kept
from lakerunner.index.rule_catalog import DELETED, SPAN_METRICS, Hole
from lakerunner.index.segments import live_segments, ref
from lakerunner.index.series_key import series_key
from lakerunner.index.work import WorkItem
from lakerunner.model.deletion import DeletionRequest
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signals import METRICS, TRACES
from lakerunner.pipeline.backfill.task import BackfillResult, BackfillTask
from lakerunner.pipeline.derive.evaluate import SLOTS
from lakerunner.pipeline.derive.rule_set import RuleSet
from lakerunner.pipeline.derive.span_rules import span_metrics
from lakerunner.pipeline.rule_registry import RuleRegistry, failed_holes, rules_used
from lakerunner.query.deletable import deletion_request
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.settings import DeriveSettings
from lakerunner.runtime.telemetry import log
from lakerunner.store.config import StoreConfig

NAME = "backfill"
#: A window with more segments than this stays as it is: one commit replaces all its samples.
_MOST_SEGMENTS = 10_000

_WINDOWS = Counter(
    "lakerunner_derived_windows", "Tries to make derived metrics again after deletions, by outcome.", ["outcome"]
)

RunTasks = Callable[[Sequence[BackfillTask]], list[BackfillResult]]


@dataclass(frozen=True, slots=True)
class Remaking:
    """What it takes to make windows again."""

    database: Database
    rules: RuleRegistry
    settings: DeriveSettings
    target: StoreConfig
    run_tasks: RunTasks

    def one(self) -> Outcome | None:
        """Make the window again that is due longest; None if there is none, or it stays as it is."""
        with self.database.transaction() as tx:
            due = take_due(tx, self.settings.remake_wait_s)
        if due is None:
            return None
        crash_point("remake_taken")
        rules = self.rules.latest(due.org_id, due.signal)
        with self.database.transaction() as tx:
            segments = live_segments(tx, due.org_id, due.signal, due.time_range)
            reason = why_kept(tx, due)
            if len(segments) > _MOST_SEGMENTS:
                reason = f"more than {_MOST_SEGMENTS:,} segments have rows of the time"
            if reason is not None:
                keep(tx, due, reason)
                _WINDOWS.labels("kept").inc()
                log().warning("derived metrics kept", org=str(due.org_id), signal=due.signal, reason=reason)
                return None
            clashing = clashes(tx, due)
        return self._made(due, segments, rules, clashing)

    def _made(self, due: Due, segments: Sequence[Segment], rules: RuleSet, clashing: dict[int, str]) -> Outcome:
        wanted = replace(rules, rules=tuple(each for each in rules.rules if each.rule_id not in clashing))
        with_spans = due.signal == TRACES.name and self.settings.span_metrics and SPAN_METRICS not in clashing
        item_id = fresh_id()
        results = self._evaluated(item_id, due, segments, wanted, with_spans)
        crash_point("remake_after_write")
        made = [segment for result in results for segment in result.made]
        slots = [slot for result in results for slot in result.slots]
        names = [each.rule.name for each in wanted.rules]
        names += [each.metric for each in span_metrics().measures] if with_spans else []
        replaced, may_hold = self._replaced(due, names)
        left_out = {each.rule.name: clashing[each.rule_id] for each in rules.rules if each.rule_id in clashing}
        evaluations = [result.evaluation for result in results]
        time_range = due.time_range
        remade = Remade(
            due,
            rules.version,
            {ref(segment): segment.rules_version for segment in segments},
            replaced,
            may_hold,
            sum(segment.row_count for segment in made),
            left_out | self._span_metrics_left_out(due, clashing),
        )
        result = ItemResult(
            item_id,
            made=made,
            follow_ups=segments_made(made),
            derivation=Derivation(slots=slots) if slots else None,
            rules=rules_used(due.signal, [(rules.version, each) for each in evaluations]),
            holes=[
                *failed_holes(due.signal, evaluations),
                *(
                    Hole(due.signal, rule_id, time_range.start_ns, time_range.end_ns, DELETED)
                    for rule_id in clashing
                    if rule_id != SPAN_METRICS
                ),
            ],
            item=WorkItem(item_id, NAME, due.org_id, due.signal),
            remade=remade,
        )
        outcome = commit_item(self.database, result)
        _WINDOWS.labels(outcome.value).inc()
        about = {"org": str(due.org_id), "signal": due.signal, "from_ns": time_range.start_ns}
        log().info("derived metrics made again", outcome=outcome.value, rows=remade.samples, **about)
        return outcome

    def _evaluated(
        self, item_id: uuid.UUID, due: Due, segments: Sequence[Segment], rules: RuleSet, with_spans: bool
    ) -> list[BackfillResult]:
        dimensions = tuple(name.strip() for name in self.settings.dimensions.split(",") if name.strip())
        seen = [(segment, some) for segment in segments if (some := _seen(rules, segment)).rules or with_spans]
        if not seen:
            return []
        with self.database.transaction() as tx:
            slots, key = next_slots(tx, len(seen), SLOTS), series_key(tx)
        tasks = [
            BackfillTask(
                item_id, segment, some, slot, key, self.target, due.time_range, dimensions if with_spans else None
            )
            for (segment, some), slot in zip(seen, slots, strict=True)
        ]
        results: list[BackfillResult] = []
        at_once = self.settings.backfill_tasks
        for start in range(0, len(tasks), at_once):
            results += self.run_tasks(tasks[start : start + at_once])
            error = next((result.error for result in results if result.error is not None), None)
            if error is not None:
                raise error
        return results

    def _replaced(
        self, due: Due, names: Sequence[str]
    ) -> tuple[DeletionRequest | None, Callable[[Segment], bool]]:  # fmt: skip
        if not names:
            return None, lambda _: False
        selector = '{__name__=~"' + "|".join(names) + '"}'
        time_range = due.time_range
        return deletion_request(
            self.database, due.org_id, METRICS.name, selector, time_range.start_ns, time_range.end_ns, CREATED_BY
        )

    def _span_metrics_left_out(self, due: Due, clashing: dict[int, str]) -> dict[str, str]:
        """Why the built-in span metrics of the time stay as they are, if they do."""
        if due.signal != TRACES.name:
            return {}
        reason = clashing.get(SPAN_METRICS)
        if reason is None and not self.settings.span_metrics:
            reason = "derive.span_metrics is off"
        return {} if reason is None else {each.metric: reason for each in span_metrics().measures}


def _seen(rules: RuleSet, segment: Segment) -> RuleSet:
    """The rules that were evaluated over the segment before."""
    return replace(rules, rules=tuple(each for each in rules.rules if each.since_version <= segment.rules_version))
