"""Range aggregations: entries to one row per series and one cell per step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import LimitHit
from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Entries, Ints, Mask
from lakerunner.query.logql.eval.counted import CountedEntries
from lakerunner.query.logql.eval.failures import refuse_failed
from lakerunner.query.logql.eval.kernels import (
    add_rows,
    add_totals,
    by_series,
    cells_of,
    counter_rate,
    intervals_of,
    put_by_cell,
    series_in,
    tally,
    tally_cells,
    tally_series,
    tally_values,
    tally_weights,
    window_sums,
)
from lakerunner.query.logql.eval.needs import Needs, without_idle_stages
from lakerunner.query.logql.eval.series_ids import Codes, Labelled, series_ids
from lakerunner.query.logql.eval.series_times import SeriesTimes
from lakerunner.query.logql.eval.source import EntryRequest, EntrySource
from lakerunner.query.logql.eval.windows import Windows
from lakerunner.query.logql.stages.unwrap import unwrapped
from lakerunner.query.series.arrays import allocated, offsets_of
from lakerunner.query.series.block import Block, any_series
from lakerunner.query.series.histograms.histogram import Floats
from lakerunner.query.series.matchers import MatchKind
from lakerunner.query.vectors import kernels_window, ranges
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.kernels_fold import window_quantile
from lakerunner.query.vectors.range_samples import NO_HISTOGRAMS, RangeSamples, SampleTimes

_Number = TypeVar("_Number", np.int64, np.float64)
_Found = TypeVar("_Found")

_NS_PER_S = 1_000_000_000
_NO_TIMES: Ints = np.zeros(0, np.int64)
#: Series times intervals: their numbers have 32 bits.
_MOST_CELLS = (1 << 31) - 1
#: Windows of more intervals are cheaper to sum value by value.
_FEW_INTERVALS = 16


def aggregated(
    evaluation: Evaluation, source: EntrySource, node: ast.RangeAggregate, needs: Needs, windows: Windows
) -> Block:
    """The value of a range aggregation at every step."""
    samples = _kind(node, windows)(evaluation, node, needs, windows)
    bare = windows.uncovered()
    selector = without_idle_stages(node.range.selector, needs)
    by = needs.by if isinstance(samples, _Counts) and not needs.lines else None
    edges = None if isinstance(samples, _Values) else windows.edges
    number = _number(node, selector, needs)
    request = EntryRequest(
        selector, windows.start_ns, windows.end_ns, needs.names, needs.lines, by=by, edges=edges, number=number
    )
    for part in source.entries(request):
        evaluation.check_time()
        if isinstance(part, SeriesTimes):
            assert isinstance(samples, _Counts)
            samples.add_series(part, bare)
            continue
        if isinstance(part, CountedEntries):
            assert isinstance(samples, _Counts)
            samples.add_counted(part, bare)
            continue
        entries, values = _in_windows(evaluation, part, node, needs, windows, bare)
        if len(entries):
            samples.add(entries, values)
    if node.op == "absent_over_time":
        absent = ~any_series(samples.block().valid)
        return Block.single(certain_labels(node.range.selector), np.ones(len(absent)), absent).pruned()
    block = samples.block().pruned()
    block.drop_name = np.zeros(len(block.labels), np.bool_)
    return block


def _number(node: ast.RangeAggregate, selector: ast.LogSelector, needs: Needs) -> str | None:
    """The unwrapped label, if nothing else looks at it."""
    unwrap = node.range.unwrap
    if unwrap is None or unwrap.conversion or unwrap.filters or needs.by is None or unwrap.label in needs.by:
        return None
    others = all(isinstance(stage, ast.LineFilter) for stage in selector.stages)
    return unwrap.label if others and all(each.name != unwrap.label for each in selector.matchers) else None


def _kind(node: ast.RangeAggregate, windows: Windows) -> type[_Samples]:
    if node.range.unwrap is None:
        return _Counts
    if node.op == "quantile_over_time":
        return _Quantiles
    few = windows.most_intervals <= _FEW_INTERVALS
    return _Sums if few and node.op in ("sum_over_time", "rate") else _Values


def certain_labels(selector: ast.LogSelector) -> LabelSet:
    """The labels that every entry of the selector has: those with one matcher, for equality.

    As in Loki, the name of a metric is no label, and a matcher of an empty text in front of others does not count.
    """
    fixed: dict[str, str] = {}
    unsure = {METRIC_NAME}
    for matcher in selector.matchers:
        if matcher.kind is not MatchKind.EQUAL or matcher.name in fixed:
            unsure.add(matcher.name)
        elif matcher.value:
            fixed[matcher.name] = matcher.value
    return LabelSet.of({name: value for name, value in fixed.items() if name not in unsure})


def _in_windows(
    evaluation: Evaluation, entries: Entries, node: ast.RangeAggregate, needs: Needs, windows: Windows, bare: Mask
) -> tuple[Entries, Floats | None]:
    """The entries that lie in a window, with the values that they are unwrapped to."""
    if bare.any():
        entries = entries.filtered(~bare[_intervals(entries, windows)])
    values = None
    if node.range.unwrap is not None:
        entries, values = unwrapped(entries, node.range.unwrap, evaluation.check_time)
    refuse_failed(entries, needs.keeps_errors)
    return entries, values


def _intervals(entries: Entries, windows: Windows) -> Codes:
    if entries.are_at_one_time:
        return np.full(len(entries), _one_interval(entries, windows), np.int32)
    out = np.empty(len(entries), np.int32)
    intervals_of(entries.times_ns, windows.edges, out)
    return out


def _one_interval(entries: Entries, windows: Windows) -> int:
    """The interval (edges[j], edges[j + 1]] of entries at one time; -1 outside."""
    found = int(np.searchsorted(windows.edges, entries.times_ns[0])) - 1
    return found if found < windows.intervals else -1


class _Samples(ABC):
    """What was read so far, by series."""

    def __init__(self, evaluation: Evaluation, node: ast.RangeAggregate, needs: Needs, windows: Windows) -> None:
        self.evaluation, self.node, self.windows = evaluation, node, windows
        self.series = series_ids(needs.by, needs.without)

    def _numbered(self, entries: Labelled) -> Codes:
        """The series of every entry, within the limits of the query."""
        return self._limited(self.series.of, entries)

    def _limited(self, number: Callable[[Labelled], _Found], entries: Labelled) -> _Found:
        before = self.series.count
        found = number(entries)
        self.evaluation.check_series(self.series.count)
        self.evaluation.spend((self.series.count - before) * len(self.windows.until))
        return found

    @abstractmethod
    def add(self, entries: Entries, values: Floats | None) -> None: ...

    @abstractmethod
    def block(self) -> Block:
        """One row per series. Series without a value may be among them."""


class _Counts(_Samples):
    """Numbers of entries, and of bytes, by series and interval: entries need not be kept, nor be in order."""

    def __init__(self, evaluation: Evaluation, node: ast.RangeAggregate, needs: Needs, windows: Windows) -> None:
        super().__init__(evaluation, node, needs, windows)
        self._weighs = needs.lines
        self._counts: Ints = np.zeros((0, windows.intervals), np.int64)
        self._bytes: Ints = np.zeros((0, windows.intervals), np.int64)
        self._has_bare = bool(windows.uncovered().any())
        #: The series of entries that were counted where they are stored.
        self._series_of: dict[int, tuple[Entries, Codes]] = {}

    def add(self, entries: Entries, values: Floats | None) -> None:
        if entries.are_at_one_time and not self._weighs:
            self._add_totals(entries)
            return
        series, intervals = self._numbered(entries), _intervals(entries, self.windows)
        self._counts = _grown(self._counts, self.series.count)
        if self._weighs:
            self._bytes = _grown(self._bytes, self.series.count)
            tally_weights(series, intervals, _sizes(entries.lines), self._counts, self._bytes)
        else:
            tally(series, intervals, self._counts)

    def _add_totals(self, entries: Entries) -> None:
        """Add entries of one interval: no entry needs a number of its own."""
        interval = _one_interval(entries, self.windows)
        if interval >= 0:
            series, totals = self._limited(self.series.totals, entries)
            self._counts = _grown(self._counts, self.series.count)
            add_totals(series, totals, interval, self._counts)

    def add_series(self, found: SeriesTimes, bare: Mask) -> None:
        """Add entries by their series. `bare` are the intervals that no window includes."""
        edges, seen = self.windows.edges, np.empty(len(found), np.bool_)
        series_in(found.offsets, found.times_ns, edges, bare, seen)
        chosen = np.flatnonzero(seen)
        if not len(chosen):
            return
        numbers = self._numbered(found if len(chosen) == len(found) else found.some(chosen))
        self._counts = _grown(self._counts, self.series.count)
        tally_series(chosen, numbers, found.offsets, found.times_ns, edges, bare, self._counts)

    def add_counted(self, found: CountedEntries, bare: Mask) -> None:
        """Add entries that are counted by interval already. `bare` are the intervals that no window includes."""
        entries, counts = found.entries, found.counts
        if self._has_bare:
            counts = np.where(bare[found.first : found.first + counts.shape[1]], 0, counts)
            used: Mask = np.asarray(counts.any(axis=1))
            entries, counts = entries.filtered(used), counts[used]
        known = self._series_of.get(id(entries))
        if known is None:
            # The entries are kept too: while they are, no others have their identity.
            known = self._series_of[id(entries)] = entries, self._numbered(entries)
            self._counts = _grown(self._counts, self.series.count)
        add_rows(known[1], counts, found.first, self._counts)

    def block(self) -> Block:
        values = self.windows.totals(self._counts[: self.series.count])
        valid = values > 0
        if self._weighs:
            values = self.windows.totals(self._bytes[: self.series.count])
        if self.node.op in ("rate", "bytes_rate"):
            values /= self.node.range.range_ns / _NS_PER_S
        return Block(self.series.labels(), values, valid, np.zeros(len(values), np.bool_))


class _Sums(_Samples):
    """Sums of unwrapped values by series and interval, for windows of few intervals: no value need be kept."""

    def __init__(self, evaluation: Evaluation, node: ast.RangeAggregate, needs: Needs, windows: Windows) -> None:
        super().__init__(evaluation, node, needs, windows)
        self._counts: Ints = np.zeros((0, windows.intervals), np.int64)
        self._sums: Floats = np.zeros((0, windows.intervals))
        self._errors: Floats = np.zeros((0, windows.intervals))

    def add(self, entries: Entries, values: Floats | None) -> None:
        assert values is not None
        series, intervals = self._numbered(entries), _intervals(entries, self.windows)
        self._counts = _grown(self._counts, self.series.count)
        self._sums, self._errors = _grown(self._sums, self.series.count), _grown(self._errors, self.series.count)
        tally_values(series, intervals, values, self._counts, self._sums, self._errors)

    def block(self) -> Block:
        number, windows = self.series.count, self.windows
        shape = number, len(windows.until)
        out, ok = np.zeros(shape), np.zeros(shape, np.bool_)
        parts = self._counts[:number], self._sums[:number], self._errors[:number]
        window_sums(*parts, windows.first, windows.last, out, ok)
        if self.node.op == "rate":
            out /= self.node.range.range_ns / _NS_PER_S
        return Block(self.series.labels(), out, ok, np.zeros(number, np.bool_))


class _Quantiles(_Samples):
    """Unwrapped values by series and interval: in which order they came within an interval does not matter."""

    def __init__(self, evaluation: Evaluation, node: ast.RangeAggregate, needs: Needs, windows: Windows) -> None:
        super().__init__(evaluation, node, needs, windows)
        self._counts: Ints = np.zeros((0, windows.intervals), np.int64)
        self._pieces: list[tuple[Codes, Floats]] = []

    def add(self, entries: Entries, values: Floats | None) -> None:
        assert values is not None
        self.evaluation.spend(len(entries))
        cells = self._cells(entries)
        self._counts = _grown(self._counts, self.series.count)
        tally_cells(cells, self._counts.reshape(-1))
        # Wherever they come from: numba would compile the kernel once more for those that can be written.
        values = values.view()
        values.flags.writeable = False
        self._pieces.append((cells, values))

    def _cells(self, entries: Entries) -> Codes:
        """The place of every entry in the matrix of counts, which grows by rows; -1 outside of all intervals."""
        series, number = self._numbered(entries), self.windows.intervals
        if self.series.count * number > _MOST_CELLS:
            raise LimitHit(
                f"cannot answer the query: {self.series.count:,} series of {number:,} intervals are too many",
                hint="narrow the selector, shorten the range or widen the step",
            )
        interval = _one_interval(entries, self.windows) if entries.are_at_one_time else -1
        if interval == 0 and number == 1:
            return series
        # They are kept until all entries are read.
        out: Codes = allocated(len(entries), np.int32)
        if interval >= 0:
            np.multiply(series, np.int32(number), out=out)
            out += np.int32(interval)
        else:
            cells_of(series, _intervals(entries, self.windows), number, out)
        return out

    def block(self) -> Block:
        number, windows = self.series.count, self.windows
        offsets = offsets_of(self._counts[:number].ravel())
        values, places = allocated(int(offsets[-1]), np.float64), offsets[:-1].copy()
        for piece in self._pieces:
            self.evaluation.check_time()
            put_by_cell(*piece, places, values)
        self._pieces.clear()
        first = np.arange(number)[:, np.newaxis] * windows.intervals
        begin, end = offsets[first + windows.first], offsets[first + windows.last]
        out, ok = np.zeros(begin.shape), np.zeros(begin.shape, np.bool_)
        assert self.node.param is not None
        window_quantile(begin, end, values, np.full(len(windows.until), self.node.param), False, out, ok)
        return Block(self.series.labels(), out, ok, np.zeros(number, np.bool_))


class _Values(_Samples):
    """Unwrapped values, kept until all are read: functions of a window need its values in order of time."""

    def __init__(self, evaluation: Evaluation, node: ast.RangeAggregate, needs: Needs, windows: Windows) -> None:
        super().__init__(evaluation, node, needs, windows)
        self._pieces: list[tuple[Codes, Ints, Floats]] = []

    def add(self, entries: Entries, values: Floats | None) -> None:
        assert values is not None
        self.evaluation.spend(len(entries))
        self._pieces.append((self._numbered(entries), entries.times_ns, values))

    def block(self) -> Block:
        samples, node = self._sorted(), self.node
        range_s = node.range.range_ns / _NS_PER_S
        if node.op == "rate_counter":
            return self._counter_rates(samples)
        function = "sum_over_time" if node.op == "rate" else node.op
        params = [] if node.param is None else [np.full(len(self.windows.until), node.param)]
        # Windows of range functions are in any unit of time; only rates of samples look at `range_ms`.
        vector = ranges.RangeVector(samples, self.windows.after, self.windows.until, False, range_ms=0, position=0)
        block = ranges.call(self.evaluation, function, vector, params, self.windows.until)
        return block if node.op != "rate" else block.mapped(block.values / range_s)

    def _counter_rates(self, samples: RangeSamples) -> Block:
        floats = samples.floats
        begin, end = kernels_window.windows(floats.offsets, floats.ts, self.windows.after, self.windows.until)
        out, ok = np.zeros(begin.shape), np.zeros(begin.shape, np.bool_)
        counter_rate(begin, end, floats.ts, samples.values, self.node.range.range_ns, out, ok)
        return Block(samples.labels, out, ok, samples.drop_name)

    def _sorted(self) -> RangeSamples:
        number = self.series.count
        series = np.concatenate([np.zeros(0, np.int32), *(each for each, _, _ in self._pieces)])
        times = np.concatenate([_NO_TIMES, *(each for _, each, _ in self._pieces)])
        values = np.concatenate([np.zeros(0), *(each for _, _, each in self._pieces)])
        self._pieces.clear()
        offsets = offsets_of(np.bincount(series, minlength=number).astype(np.int64))
        self.evaluation.check_time()
        ordered_times, ordered = np.empty_like(times), np.empty_like(values)
        by_series(series, times, values, offsets, ordered_times, ordered)
        no_histograms = SampleTimes(np.zeros_like(offsets), _NO_TIMES, _NO_TIMES)
        floats = SampleTimes(offsets, ordered_times, _NO_TIMES)
        drop = np.zeros(number, np.bool_)
        return RangeSamples(self.series.labels(), drop, floats, ordered, no_histograms, NO_HISTOGRAMS)


def _grown(matrix: npt.NDArray[_Number], rows: int) -> npt.NDArray[_Number]:
    """The matrix with room for this many rows."""
    if rows <= len(matrix):
        return matrix
    out = np.zeros((max(rows, 2 * len(matrix)), matrix.shape[1]), matrix.dtype)
    out[: len(matrix)] = matrix
    return out


def _sizes(lines: pa.StringArray) -> Ints:
    """The size of every line in bytes."""
    sizes: Ints = pc.binary_length(lines).to_numpy().astype(np.int64)
    return sizes
