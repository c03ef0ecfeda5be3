"""The selectors of a PromQL expression with all the time that each may look at, before anything is evaluated.

It errs to the wide side: the times are for one lookup of segments, and every selector then reads its own time exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.query.promql.ast import AtEdge, Expr, MatrixSelector, Subquery, VectorSelector, children
from lakerunner.query.promql.durations import QueryContext, duration_ms
from lakerunner.query.promql.matchers import Matcher


@dataclass(frozen=True, slots=True)
class Wanted:
    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int


def leaves_of(expr: Expr, start_ms: int, end_ms: int, step_ms: int, lookback_ms: int) -> list[Wanted]:
    query = QueryContext(start_ms, end_ms, step_ms)
    return list(_leaves(expr, start_ms, end_ms, lookback_ms, query))


def _leaves(expr: Expr, start_ms: int, end_ms: int, lookback_ms: int, query: QueryContext) -> Iterator[Wanted]:
    match expr:
        case VectorSelector():
            yield _selector(expr, start_ms, end_ms, lookback_ms, 0, query)
        case MatrixSelector(vector=vector):
            yield _selector(vector, start_ms, end_ms, lookback_ms, duration_ms(expr.range, query), query)
        case Subquery():
            first, last = _moved(expr, start_ms, end_ms, query)
            yield from _leaves(expr.expr, first - duration_ms(expr.range, query), last, lookback_ms, query)
        case _:
            for child in children(expr):
                yield from _leaves(child, start_ms, end_ms, lookback_ms, query)


def _selector(
    node: VectorSelector, start_ms: int, end_ms: int, lookback_ms: int, range_ms: int, query: QueryContext
) -> Wanted:
    first, last = _moved(node, start_ms, end_ms, query)
    # Anchored and smoothed ranges look beyond their edges, by the look-back.
    extended = lookback_ms if node.anchored or node.smoothed else 0
    return Wanted(node.matchers, first - range_ms - lookback_ms - extended, last + extended)


def _moved(node: VectorSelector | Subquery, start_ms: int, end_ms: int, query: QueryContext) -> tuple[int, int]:
    offset = 0 if node.offset is None else duration_ms(node.offset, query)
    if node.at is None:
        return start_ms - offset, end_ms - offset
    at = node.at
    if isinstance(at, AtEdge):
        at = query.start_ms if at is AtEdge.START else query.end_ms
    return at - offset, at - offset
