"""Counts of entries that come as times of series equal those computed entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import ERROR, same_times
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.logql.eval.series_times import SeriesTimes
from lakerunner.query.logql.eval.source import EntryRequest, Piece
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.vectors.context import EngineOptions
from tests.query.logql.eval.memory_entries import Entry, MemoryEntries, entries_of
from tests.query.logql.eval.test_aggregations import cells_of

#: Long before and after all entries.
_START_NS, _END_NS = -(1 << 62), 1 << 62
_entries = st.lists(
    st.builds(
        Entry,
        st.integers(0, 90),
        st.fixed_dictionaries(
            {"app": st.just("a")}, optional={"level": st.sampled_from(["", "x", "ü"]), "pod": st.sampled_from("pq")}
        ),
    ),
    max_size=80,
)


def _counts(by: list[str], extent_ns: int, op: str = "count_over_time") -> ast.VectorAggregate:
    selector = ast.LogSelector((Matcher("app", MatchKind.EQUAL, "a"),))
    counts = ast.RangeAggregate(op, ast.LogRange(selector, extent_ns, 0))
    return ast.VectorAggregate("sum", counts, grouping=ast.Grouping(tuple(by)))


class _Kept(MemoryEntries):
    """Gives pieces as times of series where that pays, whatever the time range."""

    given = 0

    def entries(self, request: EntryRequest) -> Iterator[Piece]:
        assert request.by is not None
        for piece in self.selected(replace(request, start_ns=_START_NS, end_ns=_END_NS)):
            found = SeriesTimes.of(piece, request.by)
            self.given += found is not None
            if found is not None:
                yield found
            else:
                inside = (piece.times_ns >= request.start_ns) & (piece.times_ns < request.end_ns)
                yield piece.filtered(inside)


@given(
    _entries,
    st.sampled_from([[], ["level"], ["level", "pod"], ["absent", "level"]]),
    st.integers(-5, 60),
    st.integers(1, 20),
    st.integers(1, 6),
    st.integers(1, 40),
)
def test_counts_of_series(entries: list[Entry], by: list[str], start: int, step: int, steps: int, extent: int) -> None:
    """Also where windows leave out times between them, and times before and after all of them."""
    expr = _counts(by, extent)
    at, options = np.arange(steps) * step + start, EngineOptions()
    expected = cells_of(evaluate(expr, at, MemoryEntries(entries), lambda: None, options).pruned())
    assert cells_of(evaluate(expr, at, _Kept(entries), lambda: None, options).pruned()) == expected


def test_series_of_many_entries_are_kept() -> None:
    source = _Kept([Entry(number, {"app": "a", "level": "xy"[number % 2]}) for number in range(60)])
    block = evaluate(_counts(["level"], 10), np.array([30]), source, lambda: None, EngineOptions())
    assert source.given == 3 and block.values.tolist() == [[5.0], [5.0]]


def test_series_outside_the_windows_do_not_count_for_the_limit() -> None:
    levels = [Entry(number, {"app": "a", "level": "x" if number < 30 else f"y{number // 30}"}) for number in range(300)]
    block = evaluate(_counts(["level"], 10), np.array([20]), _Kept(levels), lambda: None, EngineOptions(max_series=1))
    assert block.values.tolist() == [[10.0]]


def test_entries_that_failed_or_have_a_series_each_stay_entries() -> None:
    alone = [Entry(number, {"id": str(number)}) for number in range(65)]
    assert SeriesTimes.of(entries_of(alone), frozenset({"id"})) is None
    assert SeriesTimes.of(entries_of(alone[:64]), frozenset({"id"})) is not None
    alike = entries_of([Entry(20 - number, {"id": "a"}) for number in range(20)])
    found = SeriesTimes.of(alike, frozenset({"id"}))
    assert found is not None and found.times_ns.tolist() == list(range(1, 21))
    failed = alike.with_error(np.arange(20) == 7, "JSONParserErr", pa.array(["why"] * 20))
    assert failed.label(ERROR) is not None and SeriesTimes.of(failed, frozenset({"id"})) is None


class _AtOneTime(MemoryEntries):
    """Gives entries of the same interval with one time."""

    def entries(self, request: EntryRequest) -> Iterator[Piece]:
        assert request.edges is not None
        for piece in self.selected(request):
            intervals = np.searchsorted(request.edges, piece.times_ns)
            for interval in np.unique(intervals):
                part = piece.taken(np.flatnonzero(intervals == interval))
                yield replace(part, times_ns=same_times(int(part.times_ns[0]), len(part)))


@pytest.mark.parametrize("op", ["count_over_time", "bytes_over_time"])
@given(_entries, st.sampled_from([[], ["level"], ["level", "pod"]]), st.integers(1, 20), st.integers(1, 40))
def test_counts_of_entries_at_one_time(op: str, entries: list[Entry], by: list[str], step: int, extent: int) -> None:
    expr = _counts(by, extent, op)
    at, options = np.arange(4) * step + 5, EngineOptions()
    expected = cells_of(evaluate(expr, at, MemoryEntries(entries), lambda: None, options).pruned())
    assert cells_of(evaluate(expr, at, _AtOneTime(entries), lambda: None, options).pruned()) == expected
