"""TraceQL as a language of the lake: a search is a plan of rows, each of which describes a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from lakerunner.model.errors import BadInput, Bug
from lakerunner.model.signals.traces import TRACES
from lakerunner.model.time import NS_PER_MS, NS_PER_S
from lakerunner.query.language import (
    Check,
    Evaluated,
    Plan,
    QueryOptions,
    RowPlan,
    RowSource,
    Source,
    StepPlan,
    Stream,
    step_stream,
)
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.series.batch import SeriesSource
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.series.times import QueryTimes, check_steps
from lakerunner.query.syntax.tree import TreeCodec, dumps, loads
from lakerunner.query.traceql import ast, duration_buckets, metric_cells
from lakerunner.query.traceql.check import check as check_types
from lakerunner.query.traceql.lexer import LANGUAGE as LANGUAGE_NAME
from lakerunner.query.traceql.metrics import MetricRun, Window, is_flat
from lakerunner.query.traceql.parser import parse
from lakerunner.query.traceql.printer import print_query
from lakerunner.query.traceql.repeats import Seen, suspects
from lakerunner.query.traceql.search import SCHEMA, Search, search
from lakerunner.query.traceql.shown import all_fields
from lakerunner.query.traceql.tree import trees_of
from lakerunner.query.vectors.annotations import Annotations
from lakerunner.runtime.kernels import Share

CODEC = TreeCodec(
    (
        *(ast.Literal, ast.Attribute, ast.Intrinsic, ast.Unary, ast.Binary, ast.Filter, ast.SpansetOp, ast.Aggregate),
        *(ast.ScalarOp, ast.ScalarFilter, ast.GroupBy, ast.Coalesce, ast.Select, ast.Pipeline, ast.ScalarPipeline),
        *(ast.MetricAggregate, ast.Compare, ast.Ranked, ast.ValueFilter, ast.Metric, ast.MetricNumber, ast.MetricOp),
        *(ast.Hint, ast.Query),
    )
)


@lru_cache(maxsize=512)
def compiled(text: str) -> ast.Query:
    """The checked tree of a query."""
    query = parse(text)
    check_types(text, query)
    return query


class TraceQl:
    name = "traceql"

    def compile(self, text: str, times: QueryTimes, options: QueryOptions) -> Plan:
        """A search of traces; with a step, a metric. A metric at one time covers `options.lookback_ms` before it."""
        query = compiled(text)
        if not times.step_ms and times.start_ns != times.end_ns:
            return SearchPlan(query, times, options)
        if isinstance(query.root, ast.Pipeline):
            raise BadInput("not a metrics query", hint="end it with a metric such as | rate()")
        check_steps(times, options.max_steps)
        return MetricPlan(query, times, options)

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        document = loads(payload)
        try:
            if "metric" in document:
                return step_stream(_steps(document, source, check))
            pipeline = CODEC.decode(document["pipeline"])
            start_ns, end_ns, limit, spans_per_set, reach_ns = map(int, document["search"])
            with_sets = bool(document["with_sets"])
        except (ValueError, KeyError, TypeError) as reason:
            raise BadInput(f"cannot read an encoded query: {reason!r}") from None
        query = Search(pipeline, start_ns, end_ns, limit, spans_per_set, reach_ns, with_sets)
        return Stream(search(query, source, check), dict)

    def kernels(self) -> Sequence[Share]:
        return (_warm_trees, metric_cells.warm, duration_buckets.warm)


def _warm_trees() -> None:
    one = np.zeros(1, np.int64)
    trees = trees_of(one, one, one - 1)
    trees.with_ancestor_in(one == 0)
    trees.with_descendant_in(one == 0)
    two = np.zeros(2, np.int64)
    suspects([Seen.of(0, two, two)])


LANGUAGE = TraceQl()


class SearchPlan(RowPlan):
    """A search. Metrics queries are searches for the spans that they would count."""

    language: ClassVar[str] = TraceQl.name
    schema = SCHEMA
    together = True

    def __init__(self, query: ast.Query, times: QueryTimes, options: QueryOptions, reach_ns: int | None = None) -> None:
        if times.end_ns < times.start_ns:
            raise BadInput("cannot search traces: the end is before the start")
        reach_ns = self._reach_ns = _reach_ns(options) if reach_ns is None else reach_ns
        self.canonical, self.times, self.options = print_query(query), times, options
        self.pipeline = _pipeline_of(query.root)
        limit = options.limit if options.limit is not None else 20
        self.scan = RowScan(
            TRACES,
            columns=tuple(SCHEMA.names),
            start_ns=times.start_ns - reach_ns,
            end_ns=times.end_ns + reach_ns,
            newest_first=True,
            limit=limit,
        )
        self.spans_per_set, self.with_sets = 3, True
        self.leaves = (Leaf(TRACES.name, self.scan.start_ns, self.scan.end_ns),)

    def payload(self, limit: int | None) -> bytes:
        times = [self.times.start_ns, self.times.end_ns, self.scan.limit if limit is None else limit]
        return dumps(
            {
                "pipeline": CODEC.encode(self.pipeline),
                "search": [*times, self.spans_per_set, self._reach_ns],
                "with_sets": self.with_sets,
            }
        )

    def schema_payload(self) -> bytes:
        raise Bug("cannot ask for the columns of a search: they are known")


def exemplar_plan(query: ast.Query, times: QueryTimes, options: QueryOptions) -> SearchPlan:
    """A search for spans that a metric counts. Where each is judged by itself, nothing beyond the times is read."""
    assert not isinstance(query.root, ast.Pipeline)
    plan = SearchPlan(query, times, options, 0 if _is_flat(query.root) else None)
    plan.spans_per_set = 1
    return plan


class MetricPlan(StepPlan):
    """A metrics query: values at every step."""

    language: ClassVar[str] = TraceQl.name
    reads_rows = True

    def __init__(self, query: ast.Query, times: QueryTimes, options: QueryOptions) -> None:
        assert not isinstance(query.root, ast.Pipeline)
        self.canonical, self.times, self.options = print_query(query), times, options
        self._query_options = options
        self.root, self._encoded = query.root, CODEC.encode(query.root)
        self.splittable = not _compares(query.root)
        hint = query.hint("extrapolate")
        self.weighted = hint is not None and hint.value is True
        self.width_ns = times.step_ms * NS_PER_MS or options.lookback_ms * NS_PER_MS
        self._reach_ns = 0 if _is_flat(query.root) else _reach_ns(options)
        self.leaves = self.leaves_at(times.steps())

    def leaves_at(self, steps: Ints) -> tuple[Leaf, ...]:
        window = self._window(steps)
        return (Leaf(TRACES.name, window.start_ns - self._reach_ns, window.end_ns + self._reach_ns),)

    def _window(self, steps: Ints) -> Window:
        return Window(steps * NS_PER_MS + self.times.start_rest_ns, max(self.width_ns, 1))

    def payload(self, steps: Ints, max_samples: int) -> bytes:
        window = self._window(steps)
        return dumps(
            {
                "metric": self._encoded,
                "steps": [int(window.steps_ns[0]), self.times.step_ms * NS_PER_MS, len(steps), window.width_ns],
                "max_series": self.options.max_series,
                "reach_ns": self._reach_ns,
                "weighted": self.weighted,
            }
        )

    def evaluate(self, steps: Ints, source: SeriesSource, check: Check, max_samples: int) -> Evaluated:
        if not isinstance(source, RowSource):
            raise Bug("cannot evaluate a metric of spans: its source has no rows")
        window, max_series = self._window(steps), self.options.max_series
        run = MetricRun(window, source, check, max_series, self._reach_ns, weighted=self.weighted)
        return _evaluated(self.root, run)

    def notes_of(self, document: Mapping[str, Any]) -> Annotations:
        return Annotations.from_json("", document)

    def part(self, root: ast.MetricExpr) -> MetricPlan:
        """The plan of a part of the calculation, at the same times."""
        return MetricPlan(ast.Query(root), self.times, self._query_options)


def _steps(document: Mapping[str, Any], source: RowSource, check: Check) -> Evaluated:
    root = CODEC.decode(document["metric"])
    first_ns, step_ns, count, width_ns = map(int, document["steps"])
    window = Window(first_ns + step_ns * np.arange(count, dtype=np.int64), width_ns)
    weighted, reach_ns = bool(document["weighted"]), int(document["reach_ns"])
    run = MetricRun(window, source, check, int(document["max_series"]), reach_ns, weighted=weighted)
    return _evaluated(root, run)


def _evaluated(root: ast.MetricExpr, run: MetricRun) -> Evaluated:
    block = run.block(root).pruned()
    return Evaluated(block, Annotations("", LANGUAGE_NAME), run.spans)


def _reach_ns(options: QueryOptions) -> int:
    return round(options.trace_reach_s * NS_PER_S)


def _metrics(root: ast.MetricExpr) -> Iterator[ast.Metric]:
    if isinstance(root, ast.Metric):
        yield root
    elif isinstance(root, ast.MetricOp):
        yield from _metrics(root.left)
        yield from _metrics(root.right)


def _compares(root: ast.MetricExpr) -> bool:
    return any(isinstance(metric.aggregate, ast.Compare) for metric in _metrics(root))


def _is_flat(root: ast.MetricExpr) -> bool:
    """Whether nothing beyond the asked time is read."""
    for metric in _metrics(root):
        if isinstance(metric.aggregate, ast.Compare):
            return False
        fields = (*all_fields(metric.pipeline), *metric.aggregate.by)
        argument = () if metric.aggregate.argument is None else (metric.aggregate.argument,)
        if not is_flat(metric.pipeline, (*fields, *argument)):
            return False
    return True


def _pipeline_of(root: ast.Pipeline | ast.MetricExpr) -> ast.Pipeline:
    if isinstance(root, ast.Pipeline):
        return root
    if isinstance(root, ast.Metric):
        fields = () if isinstance(root.aggregate, ast.Compare) else root.aggregate.by
        return ast.Pipeline((*root.pipeline.stages, ast.Select(fields))) if fields else root.pipeline
    raise BadInput("cannot search with a calculation of metrics", hint="search with one of its pipelines")
