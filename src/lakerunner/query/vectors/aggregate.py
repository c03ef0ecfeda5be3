"""Aggregations: series are grouped by their labels once, then folded for all steps at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import xxhash

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series.block import Block, Bools, EvaluationError
from lakerunner.query.series.go_format import general, plain
from lakerunner.query.series.histograms.histogram import Floats, Ints
from lakerunner.query.series.label_list import LabelList, grouped, in_order
from lakerunner.query.syntax.strings import quote
from lakerunner.query.vectors import kernels_group as kernels
from lakerunner.query.vectors.context import Evaluation
from lakerunner.query.vectors.histograms.aggregate import fold_histograms
from lakerunner.query.vectors.vector_functions import largest, least

_MODES = {
    "sum": kernels.SUM,
    "avg": kernels.AVG,
    "min": kernels.MIN,
    "max": kernels.MAX,
    "count": kernels.COUNT,
    "group": kernels.GROUP,
    "stdvar": kernels.STDVAR,
    "stddev": kernels.STDDEV,
}
#: Up to this many values are chosen by inserting them into a short list; beyond it, all are sorted.
_FEW = 128


@dataclass(frozen=True, slots=True)
class Aggregation:
    op: str
    grouping: tuple[str, ...] = ()
    #: True: group by all labels except `grouping` and the metric name. False: by `grouping` alone.
    without: bool = False
    #: Offsets in the query text, for annotations: of the aggregation, of its vector, of its parameter.
    position: int = 0
    vector_position: int = 0
    param_position: int = 0

    def groups(self, block: Block) -> tuple[LabelList, Ints]:
        """The labels of the groups, and the group of every series."""
        return grouped(block.labels, self.grouping, without=self.without)

    def group_labels(self, labels: LabelSet) -> LabelSet:
        """The labels of the group that a series belongs to."""
        return labels.without(METRIC_NAME, *self.grouping) if self.without else labels.keep(*self.grouping)


def _dropped_names(block: Block, group: Ints, number: int) -> Bools:
    """A group drops its name if any of its members does."""
    drop = np.zeros(number, dtype=bool)
    np.logical_or.at(drop, group, block.drop_name)
    return drop


def aggregate(evaluation: Evaluation, aggregation: Aggregation, block: Block, param: Floats | None) -> Block:
    """Apply any aggregation except `count_values`. `param` has one value per step."""
    evaluation.check_time()
    op = aggregation.op
    if op in ("topk", "bottomk", "limitk", "limit_ratio"):
        assert param is not None
        return _choose(evaluation, aggregation, block, param)
    if op == "quantile":
        assert param is not None
        _note_quantiles(evaluation, aggregation, param)
    if not block.labels:
        return block
    labels, group = aggregation.groups(block)
    shape = (len(labels), block.shape[1])
    out = np.zeros(shape)
    drop = _dropped_names(block, group, len(labels))
    if op == "quantile":
        assert param is not None
        return _quantile(evaluation, aggregation, block, param, (labels, group, drop))
    number = np.zeros(shape, dtype=np.int64)
    counted = block.present if op in ("count", "group") else block.valid
    kernels.fold_groups(_MODES[op], block.values, counted, group, out, number)
    result = Block(labels, out, number > 0, drop)
    if block.hmask is not None and op not in ("count", "group"):
        result = fold_histograms(evaluation, op, block, group, result, aggregation.vector_position)
    return result.pruned()


def _quantile(
    evaluation: Evaluation,
    aggregation: Aggregation,
    block: Block,
    q: Floats,
    groups: tuple[LabelList, Ints, Bools],
) -> Block:
    labels, group, drop = groups
    if block.hmask is not None and block.hmask.any():
        evaluation.notes.histogram_ignored("quantile", aggregation.vector_position)
    offsets, rows = grouped_rows(group, len(labels))
    out = np.zeros((len(labels), block.shape[1]))
    ok = np.zeros(out.shape, dtype=bool)
    kernels.quantile_groups(offsets, rows, block.values, block.valid, np.ascontiguousarray(q), out, ok)
    return Block(labels, out, ok, drop).pruned()


def _note_quantiles(evaluation: Evaluation, aggregation: Aggregation, q: Floats) -> None:
    """Warn of the most extreme invalid parameters, whether or not their steps have data."""
    worst = [math.nan] if np.isnan(q).any() else []
    # With a NaN among the parameters, it is both extremes, unless an infinity outranks it.
    highest, lowest = float(reduce(largest, q)), float(reduce(least, q))
    worst += [highest] if highest > 1 else []
    worst += [lowest] if lowest < 0 else []
    for value in worst:
        evaluation.notes.invalid_quantile(value, aggregation.param_position)


def grouped_rows(group: Ints, number: int) -> tuple[Ints, Ints]:
    """Where each group begins, and the rows sorted by group; within a group they keep their order."""
    rows = np.arange(len(group)) if number == 1 else np.argsort(group, kind="stable").astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=number))]).astype(np.int64)
    return offsets, rows


def _choose(evaluation: Evaluation, aggregation: Aggregation, block: Block, param: Floats) -> Block:
    """topk, bottomk, limitk, limit_ratio: a selection of the input series, unchanged."""
    op = aggregation.op
    if np.isnan(param).any() and not evaluation.planning:
        what = "Ratio" if op == "limit_ratio" else "Parameter"
        raise EvaluationError(f"{what} value is NaN")
    if op == "limit_ratio":
        return _limit_ratio(evaluation, aggregation, block, param)
    if not len(param) or param.max() < 1:
        return Block.empty(block.shape[1])
    _check_k(param)
    if not block.labels:
        return block
    ranked = op != "limitk"
    if ranked and block.hmask is not None:
        if (block.hmask & (param >= 1)).any():
            evaluation.notes.histogram_ignored(op, aggregation.position)
        block = block.floats()
    # Ties go to the first by labels: the choice must not depend on the order of the source's series.
    sorted_rows = in_order(block.labels)
    block = block if sorted_rows is None else block.rows(sorted_rows)
    labels, group = aggregation.groups(block)
    offsets, rows = grouped_rows(group, len(labels))
    keep = np.zeros(block.shape, dtype=bool)
    limit = np.floor(np.clip(param, 0, block.shape[0])).astype(np.int64)
    order = np.zeros(block.shape[0], np.int64)
    if ranked and limit.max() <= _FEW:
        kernels.choose_groups(offsets, rows, block.values, block.present, limit, op == "topk", keep, order)
    else:
        for g in range(len(labels)):
            evaluation.check_time_sometimes()
            members = rows[offsets[g] : offsets[g + 1]]
            present = block.present[members]
            if ranked:
                ranks = _ranks(block.values[members], present, largest=op == "topk")
            else:
                ranks = np.cumsum(present, axis=0) - 1
            keep[members] = present & (ranks < limit)
            order[members] = offsets[g] + ranks[:, 0]
    out = block.masked(keep)
    if block.shape[1] == 1 and ranked:
        kept = np.flatnonzero(keep)
        return out.rows(kept[np.argsort(order[kept], kind="stable")])
    return out.pruned()


def _check_k(param: Floats) -> None:
    if param.min() <= -(2.0**63):
        raise EvaluationError(f"Scalar value {general(float(param.min()))} underflows int64")
    if param.max() >= 2.0**63:
        raise EvaluationError(f"Scalar value {general(float(param.max()))} overflows int64")


def _ranks(values: Floats, present: Bools, largest: bool) -> Ints:
    """The rank of every cell within its group: NaN after all numbers, absent cells last."""
    keys = np.where(np.isnan(values), np.inf, -values if largest else values)
    worst = np.where(present, np.where(np.isnan(values), 1, 0), 2)
    ranks = np.empty(values.shape, dtype=np.int64)
    order = np.lexsort((keys, worst), axis=0)
    np.put_along_axis(ranks, order, np.arange(values.shape[0])[:, np.newaxis], axis=0)
    return ranks


def _limit_ratio(evaluation: Evaluation, aggregation: Aggregation, block: Block, ratio: Floats) -> Block:
    capped = np.clip(ratio, -1.0, 1.0)
    position = aggregation.param_position
    if ratio.max() > 1:
        evaluation.notes.invalid_ratio(float(ratio.max()), 1.0, position)
    if ratio.min() < -1:
        evaluation.notes.invalid_ratio(float(ratio.min()), -1.0, position)
    if not block.labels:
        return block
    share = np.array([_hash_share(labels) for labels in block.labels])[:, np.newaxis]
    chosen = ((capped >= 0) & (share < capped)) | ((capped < 0) & (share >= 1.0 + capped))
    return block.masked(chosen & (ratio != 0)).pruned()


def _hash_share(labels: LabelSet) -> float:
    """A number in [0, 1) that depends on the labels alone. Prometheus' own hash: both choose the same series."""
    encoded = bytearray()
    for text in (text for pair in labels for text in pair):
        raw = text.encode(errors="surrogateescape")
        size = len(raw)
        encoded += bytes([size]) if size < 255 else b"\xff" + size.to_bytes(3, "little")
        encoded += raw
    return float(xxhash.xxh64_intdigest(bytes(encoded))) / float(2**64 - 1)


def check_value_label(label: str) -> None:
    """Refuse a label that `count_values` cannot write."""
    if not label or any(0xD800 <= ord(c) <= 0xDFFF for c in label):
        raise EvaluationError(f"invalid label name {quote(label)}")


def count_values(evaluation: Evaluation, aggregation: Aggregation, label: str, block: Block) -> Block:
    """How many series of each group have each value. The value becomes the label `label`."""
    evaluation.check_time()
    check_value_label(label)
    if not block.labels:
        return block
    if not aggregation.without and label not in aggregation.grouping:
        # The value's label belongs to the group: `by` keeps it, and so does `without` unless it lists the label.
        aggregation = replace(aggregation, grouping=(*aggregation.grouping, label))
    counts: dict[LabelSet, Ints] = {}
    steps = block.shape[1]
    for row, labels in enumerate(block.labels):
        for text, cells in _value_texts(evaluation, block, row):
            key = aggregation.group_labels(labels.with_label(label, text))
            if key not in counts:
                # Every distinct value makes a series: a metric that never repeats one would fill the memory.
                evaluation.check_series(len(counts) + 1)
                evaluation.spend(steps)
                counts[key] = np.zeros(steps, dtype=np.int64)
            counts[key] += cells
    result_labels = list(counts)
    values = np.array([counts[key] for key in result_labels], dtype=np.float64).reshape(len(result_labels), steps)
    return Block(result_labels, values, values > 0, np.zeros(len(result_labels), dtype=bool)).pruned()


def _value_texts(evaluation: Evaluation, block: Block, row: int) -> list[tuple[str, Bools]]:
    """The distinct values of a series as text, each with the steps at which the series has it."""
    found: dict[str, Bools] = {}
    valid = block.valid[row]
    for value in np.unique(block.values[row, valid]).tolist():
        evaluation.check_time_sometimes()
        same = np.isnan(block.values[row]) if math.isnan(value) else block.values[row] == value
        found[plain(value)] = valid & same
    if block.hmask is not None and block.hists is not None:
        for step in block.hmask[row].nonzero()[0].tolist():
            cells = found.setdefault(str(block.hists[row, step]), np.zeros(block.shape[1], dtype=bool))
            cells[step] = True
    return list(found.items())
