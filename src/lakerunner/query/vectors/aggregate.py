"""Aggregations: series grouped once by their labels, folded for all steps at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np
import xxhash

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.promql.ast import Aggregate, String, unwrapped
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


def _grouping(expr: Aggregate) -> Callable[[LabelSet], LabelSet]:
    names = expr.grouping
    if expr.without:
        return lambda labels: labels.without(METRIC_NAME, *names)
    if not names:
        nothing = LabelSet(())
        return lambda labels: nothing
    return lambda labels: labels.keep(*names)


def _groups(expr: Aggregate, block: Block) -> tuple[LabelList, Ints]:
    """The groups' labels, and the group of every series."""
    return grouped(block.labels, expr.grouping, without=expr.without)


def _drops(block: Block, group: Ints, number: int) -> Bools:
    """A group drops its name if any of its members does."""
    drop = np.zeros(number, dtype=bool)
    np.logical_or.at(drop, group, block.drop_name)
    return drop


def aggregate(evaluation: Evaluation, expr: Aggregate, block: Block, param: Floats | None) -> Block:
    evaluation.check_time()
    if expr.op in ("topk", "bottomk", "limitk", "limit_ratio"):
        assert param is not None
        return _choose(evaluation, expr, block, param)
    if expr.op == "count_values":
        return _count_values(evaluation, expr, block)
    if expr.op == "quantile":
        assert param is not None
        _note_quantiles(evaluation, expr, param)
    if not block.labels:
        return block
    labels, group = _groups(expr, block)
    shape = (len(labels), block.shape[1])
    out = np.zeros(shape)
    drop = _drops(block, group, len(labels))
    if expr.op == "quantile":
        assert param is not None
        return _quantile(evaluation, expr, block, param, (labels, group, drop))
    number = np.zeros(shape, dtype=np.int64)
    counted = block.present if expr.op in ("count", "group") else block.valid
    kernels.fold_groups(_MODES[expr.op], block.values, counted, group, out, number)
    result = Block(labels, out, number > 0, drop)
    if block.hmask is not None and expr.op not in ("count", "group"):
        result = fold_histograms(evaluation, expr, block, group, result)
    return result.pruned()


def _quantile(
    evaluation: Evaluation, expr: Aggregate, block: Block, q: Floats, groups: tuple[LabelList, Ints, Bools]
) -> Block:
    labels, group, drop = groups
    if block.hmask is not None and block.hmask.any():
        evaluation.notes.histogram_ignored("quantile", unwrapped(expr.expr).start)
    offsets, rows = grouped_rows(group, len(labels))
    out = np.zeros((len(labels), block.shape[1]))
    ok = np.zeros(out.shape, dtype=bool)
    kernels.quantile_groups(offsets, rows, block.values, block.valid, np.ascontiguousarray(q), out, ok)
    return Block(labels, out, ok, drop).pruned()


def _note_quantiles(evaluation: Evaluation, expr: Aggregate, q: Floats) -> None:
    """The worst of the parameters that are none, whether or not there is data for them."""
    assert expr.param is not None
    worst = [math.nan] if np.isnan(q).any() else []
    # NaN is then the largest and the smallest, unless there is an infinity.
    highest, lowest = float(reduce(largest, q)), float(reduce(least, q))
    worst += [highest] if highest > 1 else []
    worst += [lowest] if lowest < 0 else []
    for value in worst:
        evaluation.notes.invalid_quantile(value, unwrapped(expr.param).start)


def grouped_rows(group: Ints, number: int) -> tuple[Ints, Ints]:
    """Rows ordered by group, in their own order within; and where every group begins."""
    rows = np.argsort(group, kind="stable").astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=number))]).astype(np.int64)
    return offsets, rows


def _choose(evaluation: Evaluation, expr: Aggregate, block: Block, param: Floats) -> Block:
    """topk, bottomk, limitk, limit_ratio: some of the input series, as they are."""
    if np.isnan(param).any() and not evaluation.planning:
        what = "Ratio" if expr.op == "limit_ratio" else "Parameter"
        raise EvaluationError(f"{what} value is NaN")
    if expr.op == "limit_ratio":
        assert expr.param is not None
        return _limit_ratio(evaluation, expr, block, param)
    if not len(param) or param.max() < 1:
        return Block.empty(block.shape[1])
    _check_k(param)
    if not block.labels:
        return block
    ranked = expr.op != "limitk"
    position = expr.start
    if ranked and block.hmask is not None:
        if (block.hmask & (param >= 1)).any():
            evaluation.notes.histogram_ignored(expr.op, position)
        block = block.floats()
    # Of equals, the first by labels: the choice must not depend on the order in which a source gives its series.
    sorted_rows = in_order(block.labels)
    block = block if sorted_rows is None else block.rows(sorted_rows)
    labels, group = _groups(expr, block)
    offsets, rows = grouped_rows(group, len(labels))
    keep = np.zeros(block.shape, dtype=bool)
    order = np.zeros(block.shape[0])
    limit = np.minimum(param, block.shape[0])
    for g in range(len(labels)):
        evaluation.look_now_and_then()
        members = rows[offsets[g] : offsets[g + 1]]
        present = block.present[members]
        if ranked:
            ranks = _ranks(block.values[members], present, largest=expr.op == "topk")
        else:
            ranks = np.cumsum(present, axis=0) - 1
        keep[members] = present & (ranks < np.floor(limit))
        order[members] = g * block.shape[0] + ranks[:, 0]
    out = block.masked(keep)
    if block.shape[1] == 1 and ranked:
        out = out.rows(np.argsort(order, kind="stable"))
    return out.pruned()


def _check_k(param: Floats) -> None:
    if param.min() <= -(2.0**63):
        raise EvaluationError(f"Scalar value {general(float(param.min()))} underflows int64")
    if param.max() >= 2.0**63:
        raise EvaluationError(f"Scalar value {general(float(param.max()))} overflows int64")


def _ranks(values: Floats, present: Bools, largest: bool) -> Ints:
    """The place of every cell among its group's: NaN after all numbers, what is absent after all."""
    keys = np.where(np.isnan(values), np.inf, -values if largest else values)
    worst = np.where(present, np.where(np.isnan(values), 1, 0), 2)
    ranks = np.empty(values.shape, dtype=np.int64)
    order = np.lexsort((keys, worst), axis=0)
    np.put_along_axis(ranks, order, np.arange(values.shape[0])[:, np.newaxis], axis=0)
    return ranks


def _limit_ratio(evaluation: Evaluation, expr: Aggregate, block: Block, ratio: Floats) -> Block:
    assert expr.param is not None
    capped = np.clip(ratio, -1.0, 1.0)
    position = unwrapped(expr.param).start
    if ratio.max() > 1:
        evaluation.notes.invalid_ratio(float(ratio.max()), 1.0, position)
    if ratio.min() < -1:
        evaluation.notes.invalid_ratio(float(ratio.min()), -1.0, position)
    if not block.labels:
        return block
    place = np.array([_place(labels) for labels in block.labels])[:, np.newaxis]
    chosen = ((capped >= 0) & (place < capped)) | ((capped < 0) & (place >= 1.0 + capped))
    return block.masked(chosen & (ratio != 0)).pruned()


def _place(labels: LabelSet) -> float:
    """A number in [0, 1) that depends on the labels alone: Prometheus' own hash, so that samples agree."""
    encoded = bytearray()
    for text in (text for pair in labels for text in pair):
        raw = text.encode(errors="surrogateescape")
        size = len(raw)
        encoded += bytes([size]) if size < 255 else b"\xff" + size.to_bytes(3, "little")
        encoded += raw
    return float(xxhash.xxh64_intdigest(bytes(encoded))) / float(2**64 - 1)


def check_value_label(expr: Aggregate) -> str:
    """The label that count_values is to write its values to; refused if it can be none."""
    assert expr.param is not None
    param = unwrapped(expr.param)
    assert isinstance(param, String)
    label = param.value
    if not label or any(0xD800 <= ord(c) <= 0xDFFF for c in label):
        raise EvaluationError(f"invalid label name {quote(label)}")
    return label


def _count_values(evaluation: Evaluation, expr: Aggregate, block: Block) -> Block:
    label = check_value_label(expr)
    if not block.labels:
        return block
    group_labels = _grouping(_with_label(expr, label))
    counts: dict[LabelSet, Ints] = {}
    steps = block.shape[1]
    for row, labels in enumerate(block.labels):
        for text, cells in _texts(evaluation, block, row):
            key = group_labels(labels.with_label(label, text))
            if key not in counts:
                # As many series as values: a metric that never repeats one would fill the memory.
                evaluation.check_series(len(counts) + 1)
                evaluation.spend(steps)
                counts[key] = np.zeros(steps, dtype=np.int64)
            counts[key] += cells
    made = list(counts)
    values = np.array([counts[key] for key in made], dtype=np.float64).reshape(len(made), steps)
    return Block(made, values, values > 0, np.zeros(len(made), dtype=bool)).pruned()


def _with_label(expr: Aggregate, label: str) -> Aggregate:
    """The value's label belongs to the group: kept by `by`, and by `without` unless listed there."""
    if expr.without or label in expr.grouping:
        return expr
    return Aggregate(expr.op, expr.expr, expr.param, (*expr.grouping, label), expr.without)


def _texts(evaluation: Evaluation, block: Block, row: int) -> list[tuple[str, Bools]]:
    """The distinct values of a series as text, with the steps at which it has them."""
    found: dict[str, Bools] = {}
    valid = block.valid[row]
    for value in np.unique(block.values[row, valid]).tolist():
        evaluation.look_now_and_then()
        same = np.isnan(block.values[row]) if math.isnan(value) else block.values[row] == value
        found[plain(value)] = valid & same
    if block.hmask is not None and block.hists is not None:
        for step in block.hmask[row].nonzero()[0].tolist():
            cells = found.setdefault(str(block.hists[row, step]), np.zeros(block.shape[1], dtype=bool))
            cells[step] = True
    return list(found.items())
