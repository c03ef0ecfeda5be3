"""Metrics of spans: counts and aggregates per step and group, as blocks that the other languages' operators know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import LimitHit
from lakerunner.model.labels import LabelSet
from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, RowSource
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.segment import ReadableRows
from lakerunner.query.series.block import Block
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.comparing import INTRINSIC_FIELDS, block_of, compared
from lakerunner.query.traceql.fields import TRACE_STATE, level_of
from lakerunner.query.traceql.labels import encoded_label
from lakerunner.query.traceql.loading import REACH_NS, find_candidates, load_traces
from lakerunner.query.traceql.metric_values import then, with_operator
from lakerunner.query.traceql.parser import COUNTING, QUANTILE
from lakerunner.query.traceql.printer import field as field_text
from lakerunner.query.traceql.pushdown import candidates
from lakerunner.query.traceql.repeats import NO_KEYS, Keys, Seen, among, keys_of, suspects
from lakerunner.query.traceql.sampling import weights_of
from lakerunner.query.traceql.shown import all_fields
from lakerunner.query.traceql.spans import BASE, Part, Spans, flat_columns
from lakerunner.query.traceql.spansets import PipelineRun
from lakerunner.query.traceql.values import DURATION, FLOAT, NIL, Values

HISTOGRAM = "histogram_over_time"
P, BUCKET = "p", "__bucket"
_NS_PER_S = 1e9


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

    def place(self, times_ns: Ints) -> Ints:
        """The step of each time; -1 where it is outside."""
        place = -((int(self.steps_ns[0]) - times_ns) // self.width_ns)
        return np.where((place >= 0) & (place < len(self.steps_ns)), place, -1)


@dataclass(slots=True)
class Cells:
    """Counts and aggregates of one group: one element per step."""

    count: Floats
    total: Floats
    least: Floats
    most: Floats

    @classmethod
    def empty(cls, steps: int) -> Cells:
        return cls(np.zeros(steps), np.zeros(steps), np.full(steps, np.inf), np.full(steps, -np.inf))

    def add(self, other: Cells) -> None:
        self.count += other.count
        self.total += other.total
        np.minimum(self.least, other.least, out=self.least)
        np.maximum(self.most, other.most, out=self.most)


Groups = dict[LabelSet, Cells]


class MetricRun:
    """Evaluates metrics over one window. With `weighted`, a span counts for all that were sampled away beside it."""

    def __init__(
        self, window: Window, source: RowSource, check: Check, max_series: int, *, weighted: bool = False
    ) -> None:
        self._window, self._source, self._check, self._max_series = window, source, check, max_series
        self._weighted = weighted
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
        low, high = self._window.start_ns - REACH_NS, self._window.end_ns + REACH_NS
        found = find_candidates(self._source, candidates(pipeline.stages), low, high, self._check)
        ids = None if found.everything else found.trace_ids
        selection = all_fields(ast.Pipeline((compare.selection,)))
        fields = tuple(dict.fromkeys((*all_fields(pipeline), *selection, *INTRINSIC_FIELDS)))
        if not len(found):
            return Block.empty(steps)
        spans = load_traces(self._source, ids, fields, low, high, self._check, every_attribute=True)
        run = PipelineRun(spans)
        rows = run.run(pipeline.stages).rows
        place = self._window.place(spans.start_ns[rows])
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
        low, high = self._window.start_ns - REACH_NS, self._window.end_ns + REACH_NS
        found = find_candidates(self._source, candidates(pipeline.stages), low, high, self._check)
        if not len(found):
            return {}
        ids = None if found.everything else found.trace_ids
        spans = load_traces(self._source, ids, fields, low, high, self._check)
        groups: Groups = {}
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
                    raise LimitHit(
                        f"cannot answer with more than {self._max_series:,} series (api.max_series)",
                        hint="group by fewer attributes, or by ones with fewer values",
                    )
                found[labels] = Cells.empty(len(self._window.steps_ns))
            found[labels].add(cells)

    def _flat(self, pipeline: ast.Pipeline, aggregate: ast.MetricAggregate, fields: Sequence[ast.Field]) -> Groups:
        """Every span is judged by itself: row groups are counted where they are read.

        If some spans may have been counted twice, all is counted again without them, and they are read with their ids.
        """
        columns = flat_columns(fields)
        window = self._window
        scan = RowScan(TRACES, candidates(pipeline.stages), columns, window.start_ns, window.end_ns, ordered=False)

        def counted(rows: ReadableRows, apart: Keys) -> tuple[Groups, Seen | None, Part | None]:
            batch = rows.batch(columns, apart=True)
            if not batch.num_rows:
                return {}, None, None
            spans = Spans.flat(Part.of(batch, fields, flat=True))
            run = PipelineRun(spans)
            mask = self._window.place(spans.start_ns) >= 0
            for stage in pipeline.stages:
                if isinstance(stage, ast.Filter):
                    mask &= run.conditions.mask(stage.condition)
            chosen = np.flatnonzero(mask)
            if not len(chosen):
                return {}, None, None
            start_ns, duration_ns = spans.start_ns[chosen], spans.duration_ns[chosen]
            if not len(apart):
                seen = Seen.of(rows.segment, start_ns, duration_ns)
                return self._grouped(spans, run, chosen, aggregate), seen, None
            twice = among(keys_of(start_ns, duration_ns), apart)
            part = None
            if twice.any():
                whole = rows.some(chosen[twice]).batch((*BASE, *columns), apart=True)
                part = Part.of(whole, fields)
            return self._grouped(spans, run, chosen[~twice], aggregate), None, part

        found: Groups = {}
        all_seen: list[Seen] = []
        spans_before = self.spans
        for groups, seen, _ in self._source.mapped(scan, lambda rows: counted(rows, NO_KEYS)):
            self._merge(found, groups)
            if seen is not None:
                all_seen.append(seen)
        doubtful = suspects(all_seen)
        if not len(doubtful):
            return found
        found, parts = {}, []
        self.spans = spans_before
        for groups, _, part in self._source.mapped(scan, lambda rows: counted(rows, doubtful)):
            self._merge(found, groups)
            if part is not None:
                parts.append(part)
        self._merge(found, self._of_traces(Spans(parts), pipeline, aggregate))
        return found

    def _grouped(self, spans: Spans, run: PipelineRun, rows: Ints, aggregate: ast.MetricAggregate) -> Groups:
        place = self._window.place(spans.start_ns[rows])
        rows, place = rows[place >= 0], place[place >= 0]
        if not len(rows):
            return {}
        self.spans += len(rows)
        values = np.ones(len(rows))
        present = np.ones(len(rows), np.bool_)
        weights = weights_of(spans.values(TRACE_STATE).take(rows)) if self._weighted else None
        columns = [(field_text(field), run.conditions.values(field).take(rows)) for field in aggregate.by]
        if aggregate.argument is not None:
            found = run.conditions.values(aggregate.argument).take(rows)
            present, values = found.is_number, np.where(found.kind == DURATION, found.number / _NS_PER_S, found.number)
            if aggregate.function in (QUANTILE, HISTOGRAM):
                buckets, counted = bucketed(found)
                columns.append((BUCKET, Values.numbers(FLOAT, buckets)))
                present = present & counted
        if aggregate.function in (QUANTILE, HISTOGRAM):
            rows, place, values = rows[present], place[present], values[present]
            columns = [(name, column.take(np.flatnonzero(present))) for name, column in columns]
            weights = None if weights is None else weights[present]
            present = np.ones(len(rows), np.bool_)
        extremes = aggregate.function in ("min_over_time", "max_over_time")
        return _reduced(columns, place, values, present, weights, len(self._window.steps_ns), extremes=extremes)

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


def bucketed(values: Values) -> tuple[Floats, np.ndarray]:
    """The bound of each number's bucket, a power of two of nanoseconds or of the number; and which numbers have one."""
    with np.errstate(all="ignore"):
        bounds = np.exp2(np.ceil(np.log2(values.number)))
    counted = np.where(values.kind == FLOAT, values.number > 0, values.number >= 2) & (values.kind != NIL)
    return np.where(values.kind == DURATION, bounds / _NS_PER_S, bounds), counted


def _reduced(
    columns: Sequence[tuple[str, Values]],
    place: Ints,
    values: Floats,
    present: np.ndarray,
    weights: Floats | None,
    steps: int,
    *,
    extremes: bool,
) -> Groups:
    """Aggregates of every group and step."""
    group = np.zeros(len(place), np.int64)
    for _, column in columns:
        codes, _ = column.groups()
        _, group = np.unique(group * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    _, first = np.unique(group, return_index=True)
    size = len(first)
    cell = group * steps + place
    shown = present.astype(np.bool_)
    weight = None if weights is None else weights[shown]
    weighed = values[shown] if weight is None else values[shown] * weight
    count = np.bincount(cell[shown], weights=weight, minlength=size * steps).reshape(size, steps)
    total = np.bincount(cell[shown], weights=weighed, minlength=size * steps).reshape(size, steps)
    low, high = np.full(size * steps, np.inf), np.full(size * steps, -np.inf)
    if extremes:
        np.minimum.at(low, cell[shown], values[shown])
        np.maximum.at(high, cell[shown], values[shown])
    least, most = low.reshape(size, steps), high.reshape(size, steps)
    found: Groups = {}
    for number, row in enumerate(first.tolist()):
        pairs = {name: encoded_label(*column.plain(row)) for name, column in columns if column.kind[row] != NIL}
        cells = Cells(count[number].astype(np.float64), total[number], least[number], most[number])
        labels = LabelSet.of(pairs)
        if labels in found:
            found[labels].add(cells)
        else:
            found[labels] = cells
    return found


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
