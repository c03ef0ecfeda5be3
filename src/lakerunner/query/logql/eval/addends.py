"""Splits a metric query into counts that add up over disjoint rows, and the rest, which is computed from their sums.

`topk(3, sum by (a) (rate(…[5m])))` is `topk(3, given / 300)`, where the given is `sum by (a) (count_over_time(…[5m]))`.
Several workers may count their own rows then. Counts of entries and bytes are whole numbers, so their sums are exact,
whatever the order. Sums of unwrapped values are not, and quantiles do not add up at all: such queries are not split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakerunner.query.logql import ast
from lakerunner.query.logql.eval.needs import absorbed
from lakerunner.query.series.block import Block
from lakerunner.query.series.label_list import LabelList, packed_labels

#: Range aggregations that count -> the count, which a rate divides by its range.
_COUNTS = {
    "count_over_time": "count_over_time",
    "rate": "count_over_time",
    "bytes_over_time": "bytes_over_time",
    "bytes_rate": "bytes_over_time",
}
_RATES = frozenset({"rate", "bytes_rate"})
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Addends:
    """The counts, and what is computed from their sums: an expression in which they are given, by number."""

    counts: tuple[ast.MetricExpr, ...]
    whole: ast.MetricExpr


def addends_of(expr: ast.MetricExpr) -> Addends | None:
    """The counts that the value of a query follows from; None if it needs anything else of its entries."""
    counts: dict[ast.MetricExpr, int] = {}
    whole = _without_counts(expr, counts)
    return Addends(tuple(counts), whole) if whole is not None and counts else None


def _without_counts(expr: ast.MetricExpr, counts: dict[ast.MetricExpr, int]) -> ast.MetricExpr | None:
    match expr:
        case ast.Number() | ast.VectorLiteral():
            return expr
        case ast.Binary(left=left, right=right):
            one, other = _without_counts(left, counts), _without_counts(right, counts)
            return None if one is None or other is None else replace(expr, left=one, right=other)
        case ast.LabelReplace(expr=inner):
            rest = _without_counts(inner, counts)
            return None if rest is None else replace(expr, expr=rest)
        case ast.VectorAggregate():
            return _counted(expr, counts) or _over_counts(expr, counts)
        case _:
            # Without a sum around it, a count has a series for every set of labels: too many to send.
            return None


def _counted(node: ast.VectorAggregate, counts: dict[ast.MetricExpr, int]) -> ast.MetricExpr | None:
    grouping, inner = absorbed(node), node.expr
    if node.op != "sum" or grouping is None or grouping.without:
        return None
    if not isinstance(inner, ast.RangeAggregate) or inner.range.unwrap is not None or inner.op not in _COUNTS:
        return None
    count = replace(node, expr=replace(inner, op=_COUNTS[inner.op]))
    given = ast.Given(counts.setdefault(count, len(counts)))
    return ast.Binary("/", given, ast.Number(inner.range.range_ns / _NS_PER_S)) if inner.op in _RATES else given


def _over_counts(node: ast.VectorAggregate, counts: dict[ast.MetricExpr, int]) -> ast.MetricExpr | None:
    rest = _without_counts(node.expr, counts)
    return None if rest is None else replace(node, expr=rest)


def summed(blocks: Sequence[Block], steps: int) -> Block:
    """The sums of counts of disjoint rows, by their labels."""
    blocks = [block for block in blocks if len(block.labels)]
    if not blocks:
        return Block.empty(steps)
    if len(blocks) == 1:
        return blocks[0]
    # Equal label sets are packed to equal bytes, so that no Python object is made for any of them.
    packed = pa.chunked_array([packed_labels(block.labels) for block in blocks]).combine_chunks().dictionary_encode()
    labels = packed.dictionary
    values, valid = np.zeros((len(labels), steps)), np.zeros((len(labels), steps), np.bool_)
    begin = 0
    for block in blocks:
        end = begin + len(block.labels)
        # The series of one block differ from each other.
        at = packed.indices[begin:end].to_numpy()
        values[at] += np.where(block.valid, block.values, 0.0)
        valid[at] |= block.valid
        begin = end
    return Block(LabelList.of_packed(labels), values, valid, np.zeros(len(labels), np.bool_))
