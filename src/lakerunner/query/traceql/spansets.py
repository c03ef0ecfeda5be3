"""Pipelines of span sets: filters, relations, groups and aggregates over all traces at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.conditions import Conditions
from lakerunner.query.traceql.operators import calculated, compared
from lakerunner.query.traceql.printer import aggregate_text, field_expr
from lakerunner.query.traceql.spans import Spans
from lakerunner.query.traceql.values import DURATION, FLOAT, INT, NIL, Mask, Values


@dataclass(frozen=True, slots=True)
class SpanSets:
    """Sets of spans, each of one trace. A span is in one set at most; sets are not empty."""

    #: Rows of spans, by set, and the number of the set of each.
    rows: Ints
    set_of: Ints
    #: The trace of each set.
    trace: Ints
    #: What groups and aggregates say of each set.
    attributes: tuple[tuple[str, Values], ...] = field(default=())

    def __len__(self) -> int:
        return len(self.trace)

    def kept(self, keep: Mask) -> SpanSets:
        """Only some of the rows. Sets without any are left out."""
        rows, set_of = self.rows[keep], self.set_of[keep]
        left, numbers = np.unique(set_of, return_inverse=True)
        attributes = tuple((name, values.take(left)) for name, values in self.attributes)
        return SpanSets(rows, numbers.astype(np.int64), self.trace[left], attributes)

    def with_attribute(self, name: str, values: Values) -> SpanSets:
        others = tuple(pair for pair in self.attributes if pair[0] != name)
        return replace(self, attributes=(*others, (name, values)))


class PipelineRun:
    """Runs pipelines over the spans of whole traces."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self.conditions = Conditions(spans)

    def everything(self) -> SpanSets:
        spans = self._spans
        return SpanSets(np.arange(len(spans)), spans.trace, np.arange(len(spans.trace_ids)))

    def run(self, stages: Sequence[ast.Stage], sets: SpanSets | None = None) -> SpanSets:
        sets = self.everything() if sets is None else sets
        for stage in stages:
            sets = self._stage(stage, sets)
        return sets

    def _stage(self, stage: ast.Stage, sets: SpanSets) -> SpanSets:
        match stage:
            case ast.Filter() | ast.SpansetOp():
                return sets.kept(self._spanset(stage, sets))
            case ast.Pipeline(stages):
                return self.run(stages, sets)
            case ast.ScalarFilter(op, left, right):
                return self._scalar_filter(op, left, right, sets)
            case ast.GroupBy(by):
                return self._grouped(by, sets)
            case ast.Coalesce():
                return SpanSets(sets.rows, *_renumbered(sets.trace[sets.set_of], sets.trace))
        return sets

    # -- relations of spans ------------------------------------------------------------------------------------------

    def _spanset(self, expr: ast.Spanset, sets: SpanSets) -> Mask:
        """Which rows of the sets the expression finds."""
        match expr:
            case ast.Filter(condition):
                return self.conditions.mask(condition)[sets.rows]
            case ast.Pipeline(stages):
                found = np.zeros(len(self._spans), np.bool_)
                found[self.run(stages, sets).rows] = True
                return found[sets.rows]
            case ast.SpansetOp(op, left, right):
                return self._joined(op, self._spanset(left, sets), self._spanset(right, sets), sets)

    def _joined(self, op: str, left: Mask, right: Mask, sets: SpanSets) -> Mask:
        if op == "||":
            return left | right
        if op == "&&":
            both = _any_of(left, sets) & _any_of(right, sets)
            return (left | right) & both[sets.set_of]
        related = np.zeros(len(self._spans), np.bool_)
        relation = op.lstrip("!&")
        for layer in _layers(left, right, sets):
            chosen = self._spread(left & layer, sets)
            others = self._spread(right & layer, sets)
            related |= others & self._related(relation, chosen)
            if op[0] == "&":
                related |= chosen & self._related(_INVERSE[relation], others)
        return right & ~related[sets.rows] if op[0] == "!" else related[sets.rows]

    def _spread(self, mask: Mask, sets: SpanSets) -> Mask:
        """A choice of the rows of the sets as one of all spans."""
        found = np.zeros(len(self._spans), np.bool_)
        found[sets.rows] = mask
        return found

    def _related(self, relation: str, chosen: Mask) -> Mask:
        """The spans that stand in the relation to one of the chosen spans, which are on its left side."""
        trees = self._spans.trees
        match relation:
            case ">":
                return trees.with_parent_in(chosen)
            case ">>":
                return trees.with_ancestor_in(chosen)
            case "<":
                return trees.with_child_in(chosen)
            case "<<":
                return trees.with_descendant_in(chosen)
        return trees.with_sibling_in(chosen)

    # -- groups and aggregates ---------------------------------------------------------------------------------------

    def _grouped(self, by: ast.FieldExpr, sets: SpanSets) -> SpanSets:
        values = self.conditions.values(by).take(sets.rows)
        groups, _ = values.groups()
        width = int(groups.max(initial=0)) + 1
        keys, first, numbers = np.unique(sets.set_of * width + groups, return_index=True, return_inverse=True)
        order = np.argsort(numbers, kind="stable")
        before = keys // width
        attributes = tuple((name, found.take(before)) for name, found in sets.attributes)
        grouped = SpanSets(sets.rows[order], numbers[order].astype(np.int64), sets.trace[before], attributes)
        return grouped.with_attribute(f"by({field_expr(by)})", values.take(first))

    def _scalar_filter(self, op: str, left: ast.Scalar, right: ast.Scalar, sets: SpanSets) -> SpanSets:
        shown: list[tuple[str, Values]] = []
        a, b = self._scalar(left, sets, shown), self._scalar(right, sets, shown)
        holds = np.broadcast_to(compared(op, a, b, len(sets)), len(sets))
        for name, values in shown:
            sets = sets.with_attribute(name, values)
        return sets.kept(holds[sets.set_of])

    def _scalar(self, scalar: ast.Scalar, sets: SpanSets, shown: list[tuple[str, Values]]) -> Values:
        """The value of a scalar for each set."""
        match scalar:
            case ast.Literal():
                return Values.of_literal(scalar)
            case ast.ScalarOp(op, left, right):
                a, b = self._scalar(left, sets, shown), self._scalar(right, sets, shown)
                return calculated(op, a, b, len(sets))
            case ast.ScalarPipeline(stages, aggregate):
                inner = self.run(stages, sets)
                values = self._aggregated(aggregate, inner)
                of_trace = np.full(len(self._spans.trace_ids), -1, np.int64)
                of_trace[inner.trace] = np.arange(len(inner))
                place = of_trace[sets.trace]
                if not len(inner):
                    return Values.nil(len(sets))
                return values.take(np.where(place >= 0, place, 0)).only(place >= 0)
            case ast.Aggregate():
                values = self._aggregated(scalar, sets)
                shown.append((aggregate_text(scalar), values))
                return values

    def _aggregated(self, aggregate: ast.Aggregate, sets: SpanSets) -> Values:
        size = len(sets)
        if aggregate.argument is None:
            return Values.numbers(INT, np.bincount(sets.set_of, minlength=size))
        values = self.conditions.values(aggregate.argument).take(sets.rows)
        keep = values.is_number
        set_of, numbers, whole, kinds = sets.set_of[keep], values.number[keep], values.whole[keep], values.kind[keep]
        counts = np.bincount(set_of, minlength=size)
        is_duration = np.bincount(set_of[kinds == DURATION], minlength=size) > 0
        is_real = np.bincount(set_of[kinds == FLOAT], minlength=size) > 0
        result, exact = np.zeros(size), np.zeros(size, np.int64)
        match aggregate.function:
            case "sum" | "avg":
                np.add.at(result, set_of, numbers)
                np.add.at(exact, set_of, whole)
                if aggregate.function == "avg":
                    result = result / np.maximum(counts, 1)
                    exact = result.astype(np.int64)
                    is_real = is_real | ~is_duration
            case "min":
                result, exact = np.full(size, np.inf), np.full(size, np.iinfo(np.int64).max)
                np.minimum.at(result, set_of, numbers)
                np.minimum.at(exact, set_of, whole)
            case _:
                result, exact = np.full(size, -np.inf), np.full(size, np.iinfo(np.int64).min)
                np.maximum.at(result, set_of, numbers)
                np.maximum.at(exact, set_of, whole)
        kind = np.where(is_duration, DURATION, np.where(is_real, FLOAT, INT))
        kind = np.where(counts > 0, kind, NIL).astype(np.int8)
        with np.errstate(invalid="ignore"):
            exact = np.where(is_real & is_duration, np.nan_to_num(result), exact).astype(np.int64)
        return Values(kind, result, exact, np.zeros(size, np.int64))


_INVERSE = {">": "<", ">>": "<<", "<": ">", "<<": ">>", "~": "~"}


def _any_of(mask: Mask, sets: SpanSets) -> Mask:
    found: Mask = np.bincount(sets.set_of[mask], minlength=len(sets)) > 0
    return found


def _layers(left: Mask, right: Mask, sets: SpanSets) -> Iterator[Mask]:
    """Rows whose relations are judged together: only spans of one set are related, so one set of a trace at a time."""
    traces = np.unique(sets.trace)
    if len(traces) == len(sets):
        yield np.ones(len(sets.rows), np.bool_)
        return
    both = np.flatnonzero(_any_of(left, sets) & _any_of(right, sets))
    by_trace = both[np.argsort(sets.trace[both], kind="stable")]
    first = np.searchsorted(sets.trace[by_trace], sets.trace[by_trace])
    place = np.full(len(sets), -1, np.int64)
    place[by_trace] = np.arange(len(by_trace)) - first
    for number in range(int(place.max(initial=-1)) + 1):
        yield place[sets.set_of] == number


def _renumbered(trace_of_row: Ints, traces: Ints) -> tuple[Ints, Ints]:
    left, numbers = np.unique(trace_of_row, return_inverse=True)
    return numbers.astype(np.int64), left
