"""Metrics of spans: counts and aggregates per step and group, as blocks that the other languages' operators know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import LabelSet
from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, RowSource
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.rows import ReadableRows
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.comparing import INTRINSIC_FIELDS, block_of, compared
from lakerunner.query.traceql.duration_buckets import DurationBuckets
from lakerunner.query.traceql.duration_buckets import counted as counted_durations
from lakerunner.query.traceql.fields import TRACE_STATE, level_of
from lakerunner.query.traceql.gathering import ENOUGH_ROWS, Gathered
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.loading import find_candidates, load_traces
from lakerunner.query.traceql.metric_cells import (
    BUCKET,
    Cells,
    Groups,
    Labelled,
    bucketed,
    places,
    reduced,
    too_many_series,
)
from lakerunner.query.traceql.metric_values import then, with_operator
from lakerunner.query.traceql.parser import COUNTING, QUANTILE
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.query.traceql.pushdown import candidates
from lakerunner.query.traceql.repeats import Keys, Seen, among, keys_of, suspects
from lakerunner.query.traceql.sampling import weights_of
from lakerunner.query.traceql.shown import all_fields
from lakerunner.query.traceql.spans import BASE, Part, Spans, flat_columns, start_times
from lakerunner.query.traceql.spansets import PipelineRun
from lakerunner.query.traceql.values import DURATION, FLOAT, Values

HISTOGRAM = "histogram_over_time"
P = "p"
#: Traces that are held at a time.
_MOST_TRACES = 131_072
_DURATION = ast.Intrinsic("duration")
_NS_PER_S = 1e9
#: Buckets that a series of quantiles may have, each of which is counted as a series.
_MOST_BUCKETS = 64

#: What a part of the spans gives: aggregates of groups, or counts in buckets with the number of spans.
_Counts: TypeAlias = Groups | tuple[dict[LabelSet, Ints], int]


@dataclass(frozen=True, slots=True)
class Window:
    """Steps of a query: the point at a step covers the time after the step before it, up to and with the step."""

    steps_ns: Ints
    width_ns: int

    @property
    def start_ns(self) -> int:
        return int(self.steps_ns[0]) - self.width_ns + 1

    @property
    def end_ns(self) -> int:
        return int(self.steps_ns[-1]) + 1

    def place(self, times_ns: Ints) -> tuple[Ints, bool]:
        """The step of each time, -1 where it is outside; and whether any is."""
        return places(times_ns, int(self.steps_ns[0]), self.width_ns, len(self.steps_ns))


class MetricRun:
    """Evaluates metrics over one window. With `weighted`, a span counts for all that were sampled away beside it.

    Spans of traces are looked for up to `reach_ns` beyond the window.
    """

    def __init__(
        self, window: Window, source: RowSource, check: Check, max_series: int, reach_ns: int, *, weighted: bool = False
    ) -> None:
        self._window, self._source, self._check, self._max_series = window, source, check, max_series
        self._reach_ns, self._weighted = reach_ns, weighted
        self.spans = 0

    def block(self, expr: ast.MetricExpr) -> Block:
        match expr:
            case ast.Metric(pipeline, aggregate, stages):
                if isinstance(aggregate, ast.Compare):
                    return self._compared(pipeline, aggregate)
                return then(self._finished(aggregate, self._groups(pipeline, aggregate)), stages)
            case ast.MetricOp(op, left, right, stages):
                return then(with_operator(op, self._operand(left), self._operand(right)), stages)
        raise TypeError("a number is no metric")

    def _compared(self, pipeline: ast.Pipeline, compare: ast.Compare) -> Block:
        steps = len(self._window.steps_ns)
        low, high = self._window.start_ns - self._reach_ns, self._window.end_ns + self._reach_ns
        found = find_candidates(self._source, candidates(pipeline.stages), low, high, self._check)
        ids = None if found.everything else found.trace_ids
        selection = all_fields(ast.Pipeline((compare.selection,)))
        fields = tuple(dict.fromkeys((*all_fields(pipeline), *selection, *INTRINSIC_FIELDS)))
        if not len(found):
            return Block.empty(steps)
        spans = load_traces(self._source, ids, fields, low, high, self._check, every_attribute=True)
        run = PipelineRun(spans)
        rows = run.run(pipeline.stages).rows
        place, _ = self._window.place(spans.start_ns[rows])
        rows, place = rows[place >= 0], place[place >= 0]
        self.spans += len(rows)
        return block_of(*compared(spans, run, rows, place, pipeline, compare, steps), steps)

    def _operand(self, expr: ast.MetricExpr) -> Block | float:
        return expr.value if isinstance(expr, ast.MetricNumber) else self.block(expr)

    def _groups(self, pipeline: ast.Pipeline, aggregate: ast.MetricAggregate) -> Groups:
        wanted = (*aggregate.by, *(() if aggregate.argument is None else (aggregate.argument,)))
        if self._weighted:
            wanted = (*wanted, TRACE_STATE)
        fields = tuple(dict.fromkeys((*all_fields(pipeline), *wanted)))
        if is_flat(pipeline, fields):
            return self._flat(pipeline, aggregate, fields)
        low, high = self._window.start_ns - self._reach_ns, self._window.end_ns + self._reach_ns
        found = find_candidates(self._source, candidates(pipeline.stages), low, high, self._check)
        groups: Groups = {}
        for begin in range(0, len(found), _MOST_TRACES):
            are_all = found.everything and len(found) <= _MOST_TRACES
            ids = None if are_all else found.trace_ids.take(slice(begin, begin + _MOST_TRACES))
            spans = load_traces(self._source, ids, fields, low, high, self._check)
            self._merge(groups, self._of_traces(spans, pipeline, aggregate))
        return groups

    def _of_traces(self, spans: Spans, pipeline: ast.Pipeline, aggregate: ast.MetricAggregate) -> Groups:
        if not len(spans):
            return {}
        run = PipelineRun(spans)
        return self._grouped(spans, run, run.run(pipeline.stages).rows, aggregate)

    def _merge(self, found: Groups, part: Groups) -> None:
        self._check()
        for labels, cells in part.items():
            if labels not in found:
                if len(found) >= self._max_series:
                    raise too_many_series(self._max_series)
                found[labels] = Cells.empty(len(self._window.steps_ns))
            found[labels].add(cells)

    def _flat(self, pipeline: ast.Pipeline, aggregate: ast.MetricAggregate, fields: Sequence[ast.Field]) -> Groups:
        """Every span is judged by itself: row groups are counted where they are read.

        If some spans may have been counted twice, all is counted again without them, and they are read with their ids.
        """
        columns = flat_columns(fields)
        window = self._window
        scan = RowScan(TRACES, candidates(pipeline.stages), columns, window.start_ns, window.end_ns, ordered=False)
        is_of_durations = aggregate.function in (QUANTILE, HISTOGRAM) and aggregate.argument == _DURATION
        in_buckets = is_of_durations and not self._weighted

        def counted(batch: pa.RecordBatch) -> _Counts:
            spans = Spans.flat(Part.of(batch, fields))
            run = PipelineRun(spans)
            chosen = _chosen(pipeline, run, len(spans))
            if in_buckets:
                return self._in_buckets(spans, run, chosen, aggregate)
            return self._grouped(spans, run, chosen, aggregate)

        def read(rows: ReadableRows) -> tuple[pa.RecordBatch | _Counts, Seen | None]:
            batch = rows.batch(columns, apart=True)
            if not batch.num_rows:
                return {}, None
            seen = Seen.of(rows.segment, start_times(batch), batch.column("duration_ns").to_numpy(zero_copy_only=False))
            return batch if batch.num_rows < ENOUGH_ROWS else counted(batch), seen

        found: Groups = {}
        buckets = DurationBuckets(self._max_series)

        def merge(part: _Counts) -> None:
            if isinstance(part, tuple):
                self._check()
                buckets.add(part[0])
                self.spans += part[1]
            else:
                self._merge(found, part)

        all_seen: list[Seen] = []
        spans_before = self.spans
        gathered = Gathered()
        for part, seen in self._source.mapped(scan, read):
            if seen is not None:
                all_seen.append(seen)
            if isinstance(part, pa.RecordBatch):
                for large, _ in gathered.add(part):
                    merge(counted(large))
            else:
                merge(part)
        for rest, _ in gathered.rest():
            merge(counted(rest))
        doubtful = suspects(all_seen)
        if not len(doubtful):
            return buckets.groups() if in_buckets else found
        self.spans = spans_before
        return self._without_repeats(scan, pipeline, aggregate, fields, doubtful)

    def _in_buckets(
        self, spans: Spans, run: PipelineRun, rows: Ints, aggregate: ast.MetricAggregate
    ) -> tuple[dict[LabelSet, Ints], int]:
        start_ns, duration_ns = spans.start_ns, spans.duration_ns
        if len(rows) < len(spans):
            start_ns, duration_ns = start_ns[rows], duration_ns[rows]
        columns = [Labelled.of(field_text(field), _taken(run.conditions.values(field), rows)) for field in aggregate.by]
        window = self._window
        first_ns, steps = int(window.steps_ns[0]), len(window.steps_ns)
        return counted_durations(columns, start_ns, duration_ns, first_ns, window.width_ns, steps, self._max_series)

    def _without_repeats(
        self,
        scan: RowScan,
        pipeline: ast.Pipeline,
        aggregate: ast.MetricAggregate,
        fields: Sequence[ast.Field],
        doubtful: Keys,
    ) -> Groups:
        columns = flat_columns(fields)

        def counted(rows: ReadableRows) -> tuple[Groups, Part | None]:
            batch = rows.batch(columns, apart=True)
            if not batch.num_rows:
                return {}, None
            spans = Spans.flat(Part.of(batch, fields))
            run = PipelineRun(spans)
            chosen = _chosen(pipeline, run, len(spans))
            twice = among(keys_of(spans.start_ns[chosen], spans.duration_ns[chosen]), doubtful)
            part = None
            if twice.any():
                some = rows.some(chosen[twice])
                part = Part.of(some.batch((*BASE, *columns), apart=True), fields, some.ids("trace_id"))
            return self._grouped(spans, run, chosen[~twice], aggregate), part

        found: Groups = {}
        parts: list[Part] = []
        for groups, part in self._source.mapped(scan, counted):
            self._merge(found, groups)
            if part is not None:
                parts.append(part)
        self._merge(found, self._of_traces(Spans(parts), pipeline, aggregate))
        return found

    def _grouped(self, spans: Spans, run: PipelineRun, rows: Ints, aggregate: ast.MetricAggregate) -> Groups:
        place, any_outside = self._window.place(spans.start_ns if len(rows) == len(spans) else spans.start_ns[rows])
        if any_outside:
            rows, place = rows[place >= 0], place[place >= 0]
        if not len(rows):
            return {}
        self.spans += len(rows)
        steps = len(self._window.steps_ns)
        weights = weights_of(_taken(spans.values(TRACE_STATE), rows)) if self._weighted else None
        columns = [Labelled.of(field_text(field), _taken(run.conditions.values(field), rows)) for field in aggregate.by]
        if aggregate.argument is None:
            return reduced(columns, place, None, weights, steps, self._max_series)
        found = _taken(run.conditions.values(aggregate.argument), rows)
        if aggregate.function in (QUANTILE, HISTOGRAM):
            buckets, counted = bucketed(found)
            columns = [each.taken(counted) for each in (*columns, buckets)]
            if not counted.all():
                place, weights = place[counted], None if weights is None else weights[counted]
            return reduced(columns, place, None, weights, steps, self._max_series * _MOST_BUCKETS)
        values = np.where(found.kind == DURATION, found.number / _NS_PER_S, found.number)
        extremes = aggregate.function in ("min_over_time", "max_over_time")
        return reduced(
            columns, place, values, weights, steps, self._max_series, present=found.is_number, extremes=extremes
        )

    def _finished(self, aggregate: ast.MetricAggregate, groups: Groups) -> Block:
        steps = len(self._window.steps_ns)
        if aggregate.function == QUANTILE:
            groups_of: dict[LabelSet, list[tuple[float, Cells]]] = {}
            for labels, cells in groups.items():
                bound = float(labels.get(BUCKET)[1:])
                groups_of.setdefault(labels.without(BUCKET), []).append((bound, cells))
            return _quantiles(groups_of, aggregate.quantiles, steps)
        if not groups:
            return Block.empty(steps)
        names = list(groups)
        count = np.stack([groups[each].count for each in names])
        valid = count > 0
        match aggregate.function:
            case "rate":
                values, valid = count / (self._window.width_ns / _NS_PER_S), np.ones_like(valid)
            case "count_over_time" | "histogram_over_time":
                values, valid = count, np.ones_like(valid)
            case "sum_over_time":
                values = np.stack([groups[each].total for each in names])
            case "avg_over_time":
                values = np.stack([groups[each].total for each in names]) / np.where(valid, count, 1)
            case "min_over_time":
                values = np.stack([groups[each].least for each in names])
            case _:
                values = np.stack([groups[each].most for each in names])
        return Block(names, np.where(valid, values, 0.0), valid, np.zeros(len(names), bool)).pruned()


def is_flat(pipeline: ast.Pipeline, fields: Sequence[ast.Field]) -> bool:
    """Whether each span can be judged without the others of its trace."""
    plain = all(isinstance(stage, ast.Filter | ast.Select) for stage in pipeline.stages)
    return plain and all(level_of(field) != "trace" for field in fields)


def _chosen(pipeline: ast.Pipeline, run: PipelineRun, size: int) -> Ints:
    """The spans that pass the filters, each judged by itself."""
    mask = np.ones(size, np.bool_)
    for stage in pipeline.stages:
        if isinstance(stage, ast.Filter):
            mask &= run.conditions.mask(stage.condition)
    return np.flatnonzero(mask)


def _taken(values: Values, rows: Ints) -> Values:
    return values if len(rows) == len(values) else values.take(rows)


def _quantiles(groups: dict[LabelSet, list[tuple[float, Cells]]], quantiles: Sequence[float], steps: int) -> Block:
    labels: list[LabelSet] = []
    rows: list[Floats] = []
    for group, buckets in groups.items():
        buckets.sort(key=lambda pair: pair[0])
        bounds = np.array([bound for bound, _ in buckets])
        counts = np.stack([cells.count for _, cells in buckets])
        for quantile in quantiles:
            labels.append(group.with_label(P, encoded_label(FLOAT, quantile)))
            rows.append(quantile_of(bounds, counts, quantile))
    if not rows:
        return Block.empty(steps)
    return Block(labels, np.stack(rows), np.ones((len(rows), steps), bool), np.zeros(len(rows), bool))


def quantile_of(bounds: Floats, counts: Floats, quantile: float) -> Floats:
    """The quantile at every step, interpolated exponentially within its bucket; 0 where there is nothing."""
    totals = counts.sum(axis=0)
    wanted = np.maximum(np.ceil(quantile * totals), 1)
    running = np.cumsum(counts, axis=0)
    bucket = np.argmax(running >= wanted, axis=0)
    steps = np.arange(counts.shape[1])
    before = running[bucket, steps] - counts[bucket, steps]
    share = (wanted - before) / np.maximum(counts[bucket, steps], 1)
    upper = bounds[bucket]
    # The bucket begins where the one before it ends, of those that have something at the step.
    filled = np.where(counts > 0, np.arange(len(bounds))[:, np.newaxis], -1)
    filled[np.arange(len(bounds))[:, np.newaxis] >= bucket] = -1
    previous = filled.max(axis=0)
    lower = np.where(previous >= 0, bounds[np.maximum(previous, 0)], upper / 2)
    found: Floats = np.where(totals > 0, lower * np.power(upper / lower, share), 0.0)
    return found


__all__ = ["COUNTING", "MetricRun", "Window"]
