"""Makes derived metrics again where rows were deleted on request: reads what is left, and replaces all samples at once.

The item of a window is created by the commit that ends it. A killed process therefore leaves no open item, and the
window is taken again after a pause. What a rule has not seen yet stays for the backfill: it is not counted here either.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from prometheus_client import Counter

from lakerunner.bus.announce import segments_made
from lakerunner.index.call_halves import WAITING, halves_within, storable
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Connection, Database
from lakerunner.index.derivation import Derivation, next_slots
from lakerunner.index.derived_windows import CREATED_BY, Due, Remade, clashes, keep, take_due, why_kept
from lakerunner.index.rule_holes import DELETED, SERVICE_GRAPH, SPAN_METRICS, Hole
from lakerunner.index.segments import live_segments, ref
from lakerunner.index.series_key import series_key
from lakerunner.index.work import WorkItem
from lakerunner.model.deletion import DeletionRequest
from lakerunner.model.half_call import unpacked
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signals import METRICS, TRACES
from lakerunner.model.time import NS_PER_S, TimeRange
from lakerunner.pipeline.backfill.calls import CallsWanted, paired_again
from lakerunner.pipeline.backfill.task import BackfillResult, BackfillTask
from lakerunner.pipeline.derive import span_rules
from lakerunner.pipeline.derive.evaluate import SLOTS
from lakerunner.pipeline.derive.rule_set import RuleSet
from lakerunner.pipeline.derive.span_rules import span_metrics
from lakerunner.pipeline.derive.spans import dimensions_of, peer_columns
from lakerunner.pipeline.edge_segments import DERIVED, edge_segments
from lakerunner.pipeline.rule_registry import RuleRegistry, failed_holes, rules_used
from lakerunner.query.deletable import deletion_request
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.settings import DeriveSettings
from lakerunner.runtime.telemetry import log
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

NAME = "backfill"
#: A window with more segments than this stays as it is: one commit replaces all its samples.
_MOST_SEGMENTS = 10_000
_TOO_MANY = f"more than {_MOST_SEGMENTS:,} segments have rows of the time"
#: Halves of calls that one process pairs.
_MOST_HALVES = 1_000_000
_TOO_MANY_HALVES = f"more than {_MOST_HALVES:,} calls have their sides in different segments"

_WINDOWS = Counter(
    "lakerunner_derived_windows", "Tries to make derived metrics again after deletions, by outcome.", ["outcome"]
)

RunTasks = Callable[[Sequence[BackfillTask]], list[BackfillResult]]


@dataclass(frozen=True, slots=True)
class _Calls:
    """What it takes to count the calls of a window again."""

    wanted: CallsWanted
    waiting: pa.Table
    #: All that may have one of the sides, also beyond the window.
    segments: Sequence[Segment]


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
            due = take_due(tx, self.settings.remake_wait_s, self._reach_ns)
        if due is None:
            return None
        crash_point("remake_taken")
        rules = self.rules.latest(due.org_id, due.signal)
        with self.database.transaction() as tx:
            clashing = clashes(tx, due)
            # Halves first: of what is paired from now on, they differ when the commit compares them.
            no_calls = self._why_no_calls(due, clashing)
            waiting = WAITING.empty_table()
            if no_calls is None:
                waiting = halves_within(tx, due.org_id, due.time_range, _MOST_HALVES)
            # One statement for the window and the time around it: between two, a compaction could replace a segment,
            # and the spans of both, the replaced one and the merged one, would be read.
            around = live_segments(tx, due.org_id, due.signal, self._around(due))
            segments = [each for each in around if each.time_range.overlaps(due.time_range)]
            calls = no_calls or self._calls(tx, due, waiting, around)
            reason = why_kept(tx, due, due.time_range)
            if len(segments) > _MOST_SEGMENTS:
                reason = _TOO_MANY
            if reason is not None:
                keep(tx, due, reason)
                _WINDOWS.labels("kept").inc()
                log().warning("derived metrics kept", org=str(due.org_id), signal=due.signal, reason=reason)
                return None
        return self._made(due, segments, rules, clashing, calls)

    @property
    def _reach_ns(self) -> int:
        """How far apart the two sides of a call may have begun."""
        return int(self.settings.pair_wait_s * NS_PER_S) if self.settings.service_graph else 0

    def _around(self, due: Due) -> TimeRange:
        """The window, and the time in which servers of its clients may have begun."""
        time_range, reach_ns = due.time_range, self._reach_ns if due.signal == TRACES.name else 0
        return TimeRange(max(0, time_range.start_ns - reach_ns), time_range.end_ns + reach_ns)

    def _why_no_calls(self, due: Due, clashing: Mapping[int, str]) -> str | None:
        """Why calls are not counted again; None if they are."""
        if not self.settings.service_graph:
            return "derive.service_graph is off"
        if due.signal != TRACES.name:
            return "only spans have calls"
        return clashing.get(SERVICE_GRAPH)

    def _calls(self, tx: Connection, due: Due, waiting: pa.Table, segments: Sequence[Segment]) -> _Calls | str:
        """What it takes to count calls again, or why they are not."""
        around = self._around(due)
        reason = why_kept(tx, due, around)
        if reason is not None or len(segments) > _MOST_SEGMENTS:
            return reason or _TOO_MANY
        if waiting.num_rows > _MOST_HALVES:
            return _TOO_MANY_HALVES
        return _Calls(CallsWanted(due.time_range, around, peer_columns(self.settings)), waiting, segments)

    def _made(
        self,
        due: Due,
        segments: Sequence[Segment],
        rules: RuleSet,
        clashing: Mapping[int, str],
        calls: _Calls | str,
    ) -> Outcome:
        wanted = replace(rules, rules=tuple(each for each in rules.rules if each.rule_id not in clashing))
        with_spans = due.signal == TRACES.name and self.settings.span_metrics and SPAN_METRICS not in clashing
        item_id = fresh_id()
        results = self._evaluated(item_id, due, segments, wanted, with_spans, calls)
        made = [segment for result in results for segment in result.made]
        slots = [slot for result in results for slot in result.slots]
        names = [each.rule.name for each in wanted.rules]
        names += [each.metric for each in span_metrics().measures] if with_spans else []
        derivation = Derivation(slots=slots)
        if isinstance(calls, _Calls):
            halves = storable(unpacked(result.halves for result in results))
            if halves.num_rows > _MOST_HALVES:
                return self._made(due, segments, rules, clashing, _TOO_MANY_HALVES)
            edges, taken = paired_again(halves, calls.waiting)
            more, slots_of_edges = self._written(due, edges)
            made += more
            derivation = Derivation([*slots, *slots_of_edges], taken)
            names += [each.metric for each in span_rules.SERVICE_GRAPH.measures]
        crash_point("remake_after_write")
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
            left_out | self._built_in_left_out(due, clashing, calls),
            calls.waiting if isinstance(calls, _Calls) else None,
        )
        result = ItemResult(
            item_id,
            made=made,
            follow_ups=segments_made(made),
            derivation=derivation if derivation.slots or derivation.taken.num_rows else None,
            rules=rules_used(due.signal, [(rules.version, each) for each in evaluations]),
            holes=[
                *failed_holes(due.signal, evaluations),
                *(
                    Hole(due.signal, rule_id, time_range.start_ns, time_range.end_ns, DELETED)
                    for rule_id in clashing
                    if rule_id not in (SPAN_METRICS, SERVICE_GRAPH)
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
        self,
        item_id: uuid.UUID,
        due: Due,
        segments: Sequence[Segment],
        rules: RuleSet,
        with_spans: bool,
        calls: _Calls | str,
    ) -> list[BackfillResult]:
        dimensions = dimensions_of(self.settings) if with_spans else None
        wanted = calls.wanted if isinstance(calls, _Calls) else None
        read = [
            (segment, some, dimensions)
            for segment in segments
            if (some := _seen(rules, segment)).rules or with_spans or wanted is not None
        ]
        if isinstance(calls, _Calls):
            within = {segment.segment_id for segment in segments}
            nothing = replace(rules, rules=())
            read += [(each, nothing, None) for each in calls.segments if each.segment_id not in within]
        if not read:
            return []
        with self.database.transaction() as tx:
            slots, key = next_slots(tx, len(read), SLOTS), series_key(tx)
        tasks = [
            BackfillTask(item_id, segment, some, slot, key, self.target, due.time_range, labels, wanted)
            for (segment, some, labels), slot in zip(read, slots, strict=True)
        ]
        results: list[BackfillResult] = []
        at_once = self.settings.backfill_tasks
        for start in range(0, len(tasks), at_once):
            results += self.run_tasks(tasks[start : start + at_once])
            error = next((result.error for result in results if result.error is not None), None)
            if error is not None:
                raise error
        return results

    def _written(self, due: Due, edges: pa.Table) -> tuple[list[Segment], list[tuple[int, int]]]:
        """Segments of calls whose sides are in different segments, and the slots of their samples."""
        if not edges.num_rows:
            return [], []
        with self.database.transaction() as tx:
            [slot], key = next_slots(tx, 1, SLOTS), series_key(tx)
        segments, intervals = edge_segments(open_store(self.target), due.org_id, DERIVED, edges, slot, key)
        return segments, [(slot, interval) for interval in intervals]

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

    def _built_in_left_out(self, due: Due, clashing: Mapping[int, str], calls: _Calls | str) -> dict[str, str]:
        """Why built-in metrics of the time stay as they are, as far as they do."""
        if due.signal != TRACES.name:
            return {}
        reason = clashing.get(SPAN_METRICS)
        if reason is None and not self.settings.span_metrics:
            reason = "derive.span_metrics is off"
        left_out = {} if reason is None else {each.metric: reason for each in span_metrics().measures}
        if isinstance(calls, str):
            left_out |= {each.metric: calls for each in span_rules.SERVICE_GRAPH.measures}
        return left_out


def _seen(rules: RuleSet, segment: Segment) -> RuleSet:
    """The rules that were evaluated over the segment before."""
    return replace(rules, rules=tuple(each for each in rules.rules if each.since_version <= segment.rules_version))
