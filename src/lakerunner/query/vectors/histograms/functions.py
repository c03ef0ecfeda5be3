"""histogram_quantile, histogram_quantiles and histogram_fraction, for native and classic histograms."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.block import Block, Bools, any_step, concatenated
from lakerunner.query.series.go_format import open_metrics
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.vectors import kernels_distribution as distribution
from lakerunner.query.vectors import kernels_group as kernels
from lakerunner.query.vectors.aggregate import grouped_rows
from lakerunner.query.vectors.context import Evaluation

_Pairs = tuple[tuple[str, str], ...]
_NUMBER = re.compile(r"(?i:[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan))", re.ASCII)


@lru_cache(maxsize=1024)
def bucket_bound_of(text: str) -> float | None:
    """The value of an `le` label, or None if it is not a number."""
    return float(text) if _NUMBER.fullmatch(text) else None


@dataclass(slots=True)
class _Classic:
    """Classic histograms: series that differ only in `le` are the buckets of one histogram."""

    block: Block
    valid: Bools
    labels: list[LabelSet]
    offsets: Ints
    rows: Ints
    bound: Floats


@dataclass(slots=True)
class HistogramKinds:
    """The native and the classic histograms of a vector. Where one series has both, neither is used."""

    native: Block
    classic: _Classic


def _without_le(pairs: _Pairs) -> tuple[_Pairs, str]:
    """A bucket's labels without `le`, and its `le`. Pairs, because building a label set per bucket is slow."""
    for place, (name, value) in enumerate(pairs):
        if name == "le":
            return pairs[:place] + pairs[place + 1 :], value
    return pairs, ""


def split(evaluation: Evaluation, block: Block, position: int) -> HistogramKinds:
    found: dict[_Pairs, int] = {}
    numbers: list[float] = []
    index: list[int] = []
    for row, labels in enumerate(block.labels):
        key, le = _without_le(labels.pairs)
        bound = bucket_bound_of(le)
        index.append(found.setdefault(key, len(found)))
        numbers.append(math.nan if bound is None else bound)
        if bound is None and block.valid[row].any():
            evaluation.notes.bad_bucket_label(labels.get(METRIC_NAME), le, position)
    bounds, group = np.array(numbers, dtype=np.float64), np.array(index, dtype=np.int64)
    bucket = ~np.isnan(bounds)
    valid = block.valid & bucket[:, np.newaxis]
    hmask = np.zeros(block.shape, dtype=bool) if block.hmask is None else block.hmask
    if hmask.any() and valid.any():
        valid, hmask = _without_conflicts(evaluation, block, position, (group, len(found), valid, hmask))
    order = np.lexsort((bounds, group))
    offsets, _ = grouped_rows(group, len(found))
    classic = _Classic(block, valid, list(map(LabelSet, found)), offsets, order.astype(np.int64), bounds)
    native = Block(block.labels, block.values, np.zeros_like(valid), block.drop_name, block.hists, hmask)
    return HistogramKinds(native, classic)


def _without_conflicts(
    evaluation: Evaluation, block: Block, position: int, parts: tuple[Ints, int, Bools, Bools]
) -> tuple[Bools, Bools]:
    group, number, valid, hmask = parts
    classic_there, native_there = (np.zeros((number, block.shape[1]), dtype=bool) for _ in range(2))
    np.logical_or.at(classic_there, group, valid)
    np.logical_or.at(native_there, group, hmask)
    conflict = (classic_there & native_there)[group]
    for row in any_step(conflict & hmask).nonzero()[0].tolist():
        evaluation.notes.mixed_classic_native(block.labels[row].get(METRIC_NAME), position)
    return valid & ~conflict, hmask & ~conflict


class _Native:
    """The native histograms of a vector as flat arrays, with the series and the step of each."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.series, self.steps = (block.present if block.hmask is None else block.hmask).nonzero()
        self.number = len(self.steps)
        self.column = HistogramColumn.of([])
        self.rows = self.steps[:0]
        if block.hists is not None:
            self.column, self.rows = block.hists.column, block.hists.row[self.series, self.steps]

    def names(self, cells: Bools) -> set[str]:
        return {self.block.labels[row].get(METRIC_NAME) for row in np.unique(self.series[cells]).tolist()}

    def numbers(self, found: Floats) -> Block:
        """The vector with every histogram replaced by its number."""
        values, valid = np.zeros(self.block.shape), np.zeros(self.block.shape, dtype=bool)
        values[self.series, self.steps] = found
        valid[self.series, self.steps] = True
        return Block(self.block.labels, values, valid, np.ones(len(self.block.labels), dtype=bool)).pruned()


def _native_quantile(evaluation: Evaluation, block: Block, q: Floats, position: int) -> Block:
    native = _Native(block)
    cell_q = q[native.steps]
    found, power, unplaced = np.zeros(native.number), np.zeros(native.number, np.int8), np.zeros(native.number, bool)
    distribution.quantiles(native.column.arrays(), native.rows, cell_q, distribution.FRACTIONS, found, power, unplaced)
    # Not in the kernel: compiled powers of 2 differ from numpy's in the last bit.
    found = np.where(power == 0, found, power * np.exp2(found))
    unplaced &= (cell_q >= 0) & (cell_q <= 1)
    for name in native.names(unplaced & np.isnan(found)):
        evaluation.notes.quantile_is_nan(name, position)
    for name in native.names(unplaced & ~np.isnan(found)):
        evaluation.notes.quantile_is_skewed(name, position)
    return native.numbers(found)


def _native_fraction(evaluation: Evaluation, block: Block, lower: Floats, upper: Floats, position: int) -> Block:
    native = _Native(block)
    found, unplaced = np.zeros(native.number), np.zeros(native.number, bool)
    distribution.fractions_between(
        native.column.arrays(), native.rows, lower[native.steps], upper[native.steps], distribution.FRACTIONS,
        found, unplaced,
    )  # fmt: skip
    for name in native.names(unplaced & (lower < upper)[native.steps]):
        evaluation.notes.fraction_without_nan(name, position)
    return native.numbers(found)


def quantile_block(evaluation: Evaluation, kinds: HistogramKinds, q: Floats, times: Ints, position: int) -> Block:
    native = _native_quantile(evaluation, kinds.native, q, position)
    return concatenated([native, _classic_quantile(evaluation, kinds.classic, q, times, position)], len(q))


def _classic_quantile(evaluation: Evaluation, classic: _Classic, q: Floats, times: Ints, position: int) -> Block:
    shape = (len(classic.labels), classic.block.shape[1])
    out, ok, forced = np.zeros(shape), np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    lowest, highest, difference = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    kernels.bucket_quantiles(
        classic.offsets, classic.rows, classic.bound, classic.block.values, classic.valid, np.ascontiguousarray(q),
        out, ok, forced, lowest, highest, difference,
    )  # fmt: skip
    for g, s in zip(*(axis.tolist() for axis in forced.nonzero()), strict=True):
        name = classic.labels[g].get(METRIC_NAME)
        evaluation.notes.forced_monotonicity(
            name, position, int(times[s]), float(lowest[g, s]), float(highest[g, s]), float(difference[g, s])
        )
    return Block(classic.labels, out, ok, np.ones(shape[0], dtype=bool)).pruned()


def fraction_block(evaluation: Evaluation, kinds: HistogramKinds, lower: Floats, upper: Floats, position: int) -> Block:
    classic = kinds.classic
    shape = (len(classic.labels), classic.block.shape[1])
    out, ok = np.zeros(shape), np.zeros(shape, dtype=bool)
    kernels.bucket_fractions(
        classic.offsets, classic.rows, classic.bound, classic.block.values, classic.valid,
        np.ascontiguousarray(lower), np.ascontiguousarray(upper), out, ok,
    )  # fmt: skip
    from_classic = Block(classic.labels, out, ok, np.ones(shape[0], dtype=bool)).pruned()
    return concatenated([_native_fraction(evaluation, kinds.native, lower, upper, position), from_classic], shape[1])


def quantiles_block(
    evaluation: Evaluation, kinds: HistogramKinds, label: str, qs: Sequence[Floats], times: Ints, position: int
) -> Block:
    """One series per quantile, distinguished by a label. A quantile that varies by step has several series."""
    blocks = []
    for q in qs:
        quantiles = quantile_block(evaluation, kinds, q, times, position)
        for value in np.unique(q).tolist():
            same = np.isnan(q) if math.isnan(value) else q == value
            part = quantiles.masked(np.broadcast_to(same, quantiles.shape)).pruned()
            blocks.append(part.relabelled([labels.with_label(label, open_metrics(value)) for labels in part.labels]))
    return concatenated(blocks, len(times))
