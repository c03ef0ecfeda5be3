"""Second stages and arithmetic of metrics, on blocks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lakerunner.model.labels import LabelSet
from lakerunner.query.series.block import Block
from lakerunner.query.traceql import ast

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATE: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
}


def then(block: Block, stages: Sequence[ast.SecondStage]) -> Block:
    for stage in stages:
        if isinstance(stage, ast.ValueFilter):
            block = block.masked(_COMPARE[stage.op](block.values, stage.value)).pruned()
        else:
            block = _ranked(block, stage)
    return block


def _ranked(block: Block, stage: ast.Ranked) -> Block:
    """At every step the series with the largest or smallest values; of equal ones, those whose labels come first."""
    if not len(block.labels):
        return block
    by_label = sorted(range(len(block.labels)), key=lambda row: block.labels[row].pairs)
    rank = np.empty(len(by_label), np.int64)
    rank[by_label] = np.arange(len(by_label))
    keys = np.where(block.valid, block.values if stage.function == "bottomk" else -block.values, np.inf)
    order = np.lexsort((np.broadcast_to(rank[:, np.newaxis], keys.shape), keys), axis=0)
    keep = np.zeros(keys.shape, bool)
    np.put_along_axis(keep, order[: stage.count], True, axis=0)
    return block.masked(keep).pruned()


def with_operator(op: str, left: Block | float, right: Block | float) -> Block:
    """Series with the same labels are calculated with each other; a number or a series without labels, with all."""
    calculate = _CALCULATE[op]
    with np.errstate(all="ignore"):
        if isinstance(left, Block) and isinstance(right, Block):
            return _paired(calculate, left, right)
        if isinstance(left, Block):
            return _finite(left.mapped(calculate(left.values, right)))
        assert isinstance(right, Block)
        return _finite(right.mapped(calculate(left, right.values)))


def _finite(block: Block) -> Block:
    """What is divided by zero has no value."""
    return block.masked(np.isfinite(block.values)).pruned()


def _paired(calculate: Callable[[Any, Any], Any], left: Block, right: Block) -> Block:
    place: dict[LabelSet, int] = {labels: row for row, labels in enumerate(right.labels)}
    if _is_alone(right):
        pairs = [(row, 0) for row in range(len(left.labels))]
    elif _is_alone(left):
        pairs = [(0, row) for row in range(len(right.labels))]
    else:
        pairs = [(row, place[labels]) for row, labels in enumerate(left.labels) if labels in place]
    a, b = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    values = calculate(left.values[a], right.values[b])
    valid = left.valid[a] & right.valid[b]
    labels = [left.labels[i] if len(left.labels[i]) else right.labels[j] for i, j in pairs]
    return _finite(Block(labels, values, valid, np.zeros(len(a), bool)))


def _is_alone(block: Block) -> bool:
    return len(block.labels) == 1 and not len(block.labels[0])
