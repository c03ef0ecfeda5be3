"""Function calls: evaluates the arguments, then the function."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from lakerunner.model.errors import Bug
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.promql.ast import Call, Expr, MatrixSelector, String, VectorSelector, unwrapped
from lakerunner.query.promql.eval.info import enrich
from lakerunner.query.promql.eval.selectors import latest_of
from lakerunner.query.series.block import Block, Bools, any_series
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.matchers import MatchKind
from lakerunner.query.vectors import label_functions, ranges, vector_functions
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms import functions as histogram_functions
from lakerunner.query.vectors.instant import repeated

#: Functions that read only the count and the sum of a histogram.
_STATS = frozenset({"histogram_avg", "histogram_count", "histogram_sum"})
#: The index of the range vector among several arguments.
_RANGE_FUNCTIONS_WITH_SCALAR = {"quantile_over_time": 1, "predict_linear": 0, "double_exponential_smoothing": 0}


class Calls(ABC):
    """The part of the evaluator that calls functions."""

    evaluation: Evaluation
    #: The first and the last time of the evaluation. The last one need not be a step.
    start_ms: int
    end_ms: int

    @abstractmethod
    def block(self, expr: Expr, times: Ints) -> Block: ...

    @abstractmethod
    def scalar(self, expr: Expr, times: Ints) -> Floats: ...

    @abstractmethod
    def range_vector(self, expr: Expr, times: Ints, function: str) -> ranges.RangeVector: ...

    def call(self, expr: Call, times: Ints) -> Floats | Block:
        name, args = expr.name, expr.args
        if name in vector_functions.FLOAT_FUNCTIONS:
            return vector_functions.apply_float(name, self.block(args[0], times))
        if name in vector_functions.HISTOGRAM_VALUES:
            return self._histogram_value(expr, times)
        if name in vector_functions.DATE_FUNCTIONS:
            return self._date(expr, times)
        if name.endswith("_over_time") or name in ranges.OTHER_FUNCTIONS:
            return self._range(expr, times)
        method = _METHODS.get(name)
        if method is None:
            raise Bug(f"cannot call {name}: it has no implementation")
        return method(self, expr, times)

    # -- scalars -----------------------------------------------------------------------------------------------

    def _time(self, expr: Call, times: Ints) -> Floats:
        return times / 1000

    def _pi(self, expr: Call, times: Ints) -> Floats:
        return np.full(len(times), math.pi)

    def _query_time(self, expr: Call, times: Ints) -> Floats:
        query = self.evaluation.query
        value_ms = {
            "start": query.start_ms,
            "end": query.end_ms,
            "range": query.range_ms,
            # Unlike in durations, the step is 0 if the range has one step.
            "step": query.step_ms if query.range_ms else 0,
        }[expr.name]
        return np.full(len(times), value_ms / 1000)

    def _extreme(self, expr: Call, times: Ints) -> Floats:
        left, right = (self.scalar(arg, times) for arg in expr.args)
        return (vector_functions.largest if expr.name == "max_of" else vector_functions.least)(left, right)

    def _scalar(self, expr: Call, times: Ints) -> Floats:
        block = self.block(expr.args[0], times)
        if not block.labels:
            return np.full(len(times), np.nan)
        only = block.values[block.valid.argmax(axis=0), np.arange(len(times))]
        return np.where(block.valid.sum(axis=0) == 1, only, np.nan)

    # -- vectors -----------------------------------------------------------------------------------------------

    def _vector(self, expr: Call, times: Ints) -> Block:
        return Block.single(LabelSet(()), self.scalar(expr.args[0], times))

    def _absent(self, expr: Call, times: Ints) -> Block:
        present = any_series(self.block(expr.args[0], times).present)
        return self._absence(expr.args[0], ~present)

    def _absence(self, arg: Expr, missing: Bools) -> Block:
        return Block.single(_certain_labels(arg), np.ones(len(missing)), missing).pruned()

    def _date(self, expr: Call, times: Ints) -> Block:
        function = vector_functions.DATE_FUNCTIONS[expr.name]
        if not expr.args:
            return Block.single(LabelSet(()), function(np.floor_divide(times, 1000).astype(np.float64)))
        block = self.block(expr.args[0], times)
        return block.mapped(function(block.values))

    def _clamp(self, expr: Call, times: Ints) -> Block:
        block = self.block(expr.args[0], times)
        low, high = np.full(len(times), -math.inf), np.full(len(times), math.inf)
        if expr.name != "clamp_max":
            low = self.scalar(expr.args[1], times)
        if expr.name != "clamp_min":
            high = self.scalar(expr.args[-1], times)
        return vector_functions.clamp(block, low, high)

    def _round(self, expr: Call, times: Ints) -> Block:
        nearest = self.scalar(expr.args[1], times) if len(expr.args) > 1 else np.ones(len(times))
        return vector_functions.round_to(self.block(expr.args[0], times), nearest)

    def _timestamp(self, expr: Call, times: Ints) -> Block:
        """For a selector the time of the sample; for other expressions the time of the step."""
        arg = unwrapped(expr.args[0])
        if not isinstance(arg, VectorSelector):
            block = self.block(arg, times)
            if expr.name == "start_timestamp":
                return Block.empty(len(times))
            values = np.broadcast_to(times / 1000, block.shape)
            drop = np.ones(len(block.labels), dtype=bool)
            return Block(block.labels, values, block.present, drop)
        found = latest_of(self.evaluation, arg, times)
        source = found.batch.timestamps_ms if expr.name == "timestamp" else found.batch.start_timestamps_ms
        if source is None or not len(source):
            return Block.empty(len(times))
        labels = list(found.batch.labels)
        block = Block(labels, source[found.index] / 1000, found.index >= 0, np.ones(len(labels), dtype=bool)).pruned()
        return repeated(self.evaluation, block, len(times)) if found.fixed else block

    def _label_replace(self, expr: Call, times: Ints) -> Block:
        target, template, source, pattern = (_text(arg) for arg in expr.args[1:])
        label_functions.check_label_replace(target, pattern)
        block = self.block(expr.args[0], times)
        return label_functions.label_replace(self.evaluation, block, target, template, source, pattern)

    def _label_join(self, expr: Call, times: Ints) -> Block:
        target, separator, *sources = (_text(arg) for arg in expr.args[1:])
        label_functions.check_label_join(target, sources)
        return label_functions.label_join(self.evaluation, self.block(expr.args[0], times), target, separator, sources)

    def _sort(self, expr: Call, times: Ints) -> Block:
        block = self.block(expr.args[0], times)
        descending = expr.name.endswith("_desc")
        by_label = expr.name.startswith("sort_by_label")
        if self.start_ms != self.end_ms:
            self.evaluation.notes.sort_in_range(expr.start)
            return block if by_label else block.floats().pruned()
        if by_label:
            names = [_text(arg) for arg in expr.args[1:]]
            return label_functions.sorted_by_labels(self.evaluation, block, names, descending)
        return label_functions.sorted_by_value(block, descending)

    def _info(self, expr: Call, times: Ints) -> Block:
        selector = unwrapped(expr.args[1]) if len(expr.args) > 1 else None
        assert selector is None or isinstance(selector, VectorSelector)
        return enrich(self.evaluation, expr.args[0], self.block(expr.args[0], times), selector, times)

    # -- histograms --------------------------------------------------------------------------------------------

    def _histogram_value(self, expr: Call, times: Ints) -> Block:
        if expr.name in _STATS:
            with self.evaluation.reading_stats():
                block = self.block(expr.args[0], times)
        else:
            block = self._block_with_buckets(expr.args[0], times)
        return vector_functions.apply_histogram(block, expr.name)

    def _block_with_buckets(self, arg: Expr, times: Ints) -> Block:
        with self.evaluation.reading_buckets():
            return self.block(arg, times)

    def _histogram_quantile(self, expr: Call, times: Ints) -> Block:
        q = self.scalar(expr.args[0], times)
        block = self._block_with_buckets(expr.args[1], times)
        at, vector_at = unwrapped(expr.args[0]).start, unwrapped(expr.args[1]).start
        self._note_quantiles([q], [at])
        kinds = histogram_functions.split(self.evaluation, block, vector_at)
        return histogram_functions.quantile_block(self.evaluation, kinds, q, times, vector_at)

    def _note_quantiles(self, qs: Sequence[Floats], positions: Sequence[int]) -> None:
        """Warn in the order of steps, as Prometheus does: of equal values, the last step's has the position."""
        found = []
        for number, q in enumerate(qs):
            steps = np.flatnonzero(~((q >= 0) & (q <= 1)))[::-1]
            values, last = np.unique(q[steps], return_index=True)
            found += [(int(steps[at]), number, value) for value, at in zip(values.tolist(), last.tolist(), strict=True)]
        for _, number, value in sorted(found, key=lambda each: each[:2]):
            self.evaluation.notes.invalid_quantile(value, positions[number])

    def _histogram_quantiles(self, expr: Call, times: Ints) -> Block:
        block = self._block_with_buckets(expr.args[0], times)
        qs = [self.scalar(arg, times) for arg in expr.args[2:]]
        self._note_quantiles(qs, [unwrapped(arg).start for arg in expr.args[2:]])
        position = unwrapped(expr.args[0]).start
        kinds = histogram_functions.split(self.evaluation, block, position)
        label = _text(expr.args[1])
        block = histogram_functions.quantiles_block(self.evaluation, kinds, label, qs, times, position)
        # As in Prometheus: a range query refuses duplicate series here, an instant query only in its result.
        return block if self.start_ms == self.end_ms else block.merged()

    def _histogram_fraction(self, expr: Call, times: Ints) -> Block:
        lower, upper = (self.scalar(arg, times) for arg in expr.args[:2])
        block = self._block_with_buckets(expr.args[2], times)
        position = unwrapped(expr.args[2]).start
        kinds = histogram_functions.split(self.evaluation, block, position)
        return histogram_functions.fraction_block(self.evaluation, kinds, lower, upper, position)

    # -- range vectors -----------------------------------------------------------------------------------------

    def _range(self, expr: Call, times: Ints) -> Block:
        at = _RANGE_FUNCTIONS_WITH_SCALAR.get(expr.name, 0)
        vector = self.range_vector(expr.args[at], times, expr.name)
        params = [self.scalar(arg, times) for i, arg in enumerate(expr.args) if i != at]
        if expr.name == "quantile_over_time":
            vector.position = unwrapped(expr.args[0]).start
        block = ranges.call(self.evaluation, expr.name, vector, params, times)
        if expr.name == "absent_over_time":
            return self._absence(expr.args[at], ~any_series(block.present))
        return block


_METHODS: dict[str, Callable[[Calls, Call, Ints], Floats | Block]] = {
    "time": Calls._time,
    "pi": Calls._pi,
    "start": Calls._query_time,
    "end": Calls._query_time,
    "range": Calls._query_time,
    "step": Calls._query_time,
    "max_of": Calls._extreme,
    "min_of": Calls._extreme,
    "scalar": Calls._scalar,
    "vector": Calls._vector,
    "absent": Calls._absent,
    "clamp": Calls._clamp,
    "clamp_max": Calls._clamp,
    "clamp_min": Calls._clamp,
    "round": Calls._round,
    "timestamp": Calls._timestamp,
    "start_timestamp": Calls._timestamp,
    "label_replace": Calls._label_replace,
    "label_join": Calls._label_join,
    "sort": Calls._sort,
    "sort_desc": Calls._sort,
    "sort_by_label": Calls._sort,
    "sort_by_label_desc": Calls._sort,
    "info": Calls._info,
    "histogram_quantile": Calls._histogram_quantile,
    "histogram_quantiles": Calls._histogram_quantiles,
    "histogram_fraction": Calls._histogram_fraction,
}


def _text(arg: Expr) -> str:
    literal = unwrapped(arg)
    assert isinstance(literal, String)
    return literal.value


def _certain_labels(arg: Expr) -> LabelSet:
    """The labels that every matching series would have: those with a matcher for equality."""
    node = unwrapped(arg)
    if isinstance(node, MatrixSelector):
        node = node.vector
    if not isinstance(node, VectorSelector):
        return LabelSet(())
    certain: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in node.matchers:
        if matcher.name == METRIC_NAME:
            continue
        if matcher.kind is MatchKind.EQUAL and matcher.name not in seen:
            certain[matcher.name] = matcher.value
            seen.add(matcher.name)
        else:
            certain.pop(matcher.name, None)
    return LabelSet.of(certain)
