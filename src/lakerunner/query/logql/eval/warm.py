"""Kernels in memory before the first client waits for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.vectors.context import EngineOptions

_SELECTOR = ast.LogSelector(())
_LINES = ast.LogRange(_SELECTOR, 10)
_VALUES = ast.LogRange(_SELECTOR, 10, unwrap=ast.Unwrap("v"))
_BY_ONE = ast.Grouping(("a",))
#: What dashboards ask for most.
_USUAL: tuple[ast.MetricExpr, ...] = (
    ast.VectorAggregate("sum", ast.RangeAggregate("count_over_time", _LINES), grouping=_BY_ONE),
    ast.VectorAggregate("topk", ast.RangeAggregate("bytes_rate", _LINES), param=1, grouping=ast.Grouping()),
    ast.RangeAggregate("quantile_over_time", _VALUES, 0.9, _BY_ONE),
    ast.RangeAggregate("rate_counter", _VALUES),
    ast.RangeAggregate("sum_over_time", _VALUES),
    ast.VectorAggregate("avg", ast.RangeAggregate("max_over_time", _VALUES)),
)


class _FewEntries:
    def entries(
        self, selector: ast.LogSelector, start_ns: int, end_ns: int, names: frozenset[str] | None, need_lines: bool
    ) -> Iterator[Entries]:
        columns = {
            (Category.STREAM, "a"): pa.array(["x", "y", "x"]).dictionary_encode(),
            (Category.METADATA, "v"): pa.array(["1", "2", "3"]).dictionary_encode(),
        }
        yield Entries(np.array([2, 1, 3]), pa.array(["", "", ""]), columns)


def warm() -> None:
    """Evaluate the usual expressions over a few entries. The first run ever compiles; later runs load the result."""
    for expr in _USUAL:
        evaluate(expr, np.array([5, 6]), _FewEntries(), lambda: None, EngineOptions())
