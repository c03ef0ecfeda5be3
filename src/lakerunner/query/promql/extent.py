"""How much time an expression looks at: its range, widened by look-back, ranges, offsets and `@`."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.query.promql.ast import AtEdge, Call, Expr, MatrixSelector, Subquery, VectorSelector, children
from lakerunner.query.promql.durations import duration_ms
from lakerunner.query.series.times import QueryTimes


@dataclass(frozen=True, slots=True)
class Extent:
    """Both ends included. Nothing at all when no selector occurs."""

    start_ms: int
    end_ms: int

    @property
    def width_ms(self) -> int:
        return self.end_ms - self.start_ms

    def hull(self, other: Extent | None) -> Extent:
        if other is None:
            return self
        return Extent(min(self.start_ms, other.start_ms), max(self.end_ms, other.end_ms))


def extent_of(expr: Expr, query: QueryTimes, lookback_ms: int) -> Extent | None:
    """The time from which samples may matter.

    >>> from lakerunner.query.promql.parser import parse
    >>> extent_of(parse("rate(m[1m] offset 10s)"), QueryTimes(100_000, 200_000, 1_000), 5_000)
    Extent(start_ms=30000, end_ms=190000)
    """
    return _extent(expr, query, Extent(query.start_ms, query.end_ms), lookback_ms)


def reach_ms(expr: Expr, query: QueryTimes, lookback_ms: int) -> int:
    """How far before or after a step samples matter to it; fixed times (`@`) do not count."""
    now = Extent(query.end_ms, query.end_ms)
    found = _extent(expr, query, now, lookback_ms, fixed=False)
    return 0 if found is None else max(now.start_ms - found.start_ms, found.end_ms - now.end_ms, 0)


def _extent(expr: Expr, query: QueryTimes, now: Extent, lookback_ms: int, *, fixed: bool = True) -> Extent | None:
    found: Extent | None = None
    # A stack of our own: chains of operators are deeper than the interpreter's.
    pending: list[tuple[Expr, Extent]] = [(expr, now)]
    while pending:
        node, at = pending.pop()
        match node:
            case VectorSelector():
                seen = _looked_at(node, query, at, lookback_ms, fixed=fixed, both_sides=node.smoothed)
            case MatrixSelector(vector=vector):
                extra = lookback_ms if vector.anchored or vector.smoothed else 0
                width = duration_ms(node.range, query) + extra
                seen = _looked_at(vector, query, at, width, fixed=fixed, both_sides=vector.smoothed)
            case Call(name="info"):
                # Its info series are those of the query's own time, whatever the argument looks at.
                pending += [(child, at) for child in children(node)]
                seen = Extent(at.start_ms - lookback_ms, at.end_ms)
            case Subquery():
                window = _looked_at(node, query, at, duration_ms(node.range, query), fixed=fixed)
                if window is not None:
                    pending.append((node.expr, window))
                continue
            case _:
                pending += [(child, at) for child in children(node)]
                continue
        found = found if seen is None else seen.hull(found)
    return found


def _looked_at(
    node: VectorSelector | Subquery,
    query: QueryTimes,
    now: Extent,
    width_ms: int,
    *,
    fixed: bool,
    both_sides: bool = False,
) -> Extent | None:
    if node.at is not None:
        if not fixed:
            return None
        at = node.at
        if isinstance(at, AtEdge):
            at = query.start_ms if at is AtEdge.START else query.end_ms
        now = Extent(at, at)
    offset = 0 if node.offset is None else duration_ms(node.offset, query)
    after = width_ms if both_sides else 0
    return Extent(now.start_ms - offset - width_ms, now.end_ms - offset + after)
