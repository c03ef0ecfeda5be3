"""TraceQL as a language of the lake: a search is a plan of rows, each of which describes a trace."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from lakerunner.model.errors import BadInput, Bug
from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, Plan, QueryOptions, RowPlan, Source, Stream
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.tree import TreeCodec, dumps, loads
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.check import check as check_types
from lakerunner.query.traceql.loading import REACH_NS
from lakerunner.query.traceql.parser import parse
from lakerunner.query.traceql.printer import print_query
from lakerunner.query.traceql.search import SCHEMA, Search, search

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
        """A search of traces. `options.columns` may hold how many spans of a set are described."""
        query = compiled(text)
        return SearchPlan(query, times, options)

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        document = loads(payload)
        try:
            pipeline = CODEC.decode(document["pipeline"])
            start_ns, end_ns, limit, spans_per_set = map(int, document["search"])
            with_sets = bool(document["with_sets"])
        except (ValueError, KeyError, TypeError) as reason:
            raise BadInput(f"cannot read an encoded query: {reason!r}") from None
        query = Search(pipeline, start_ns, end_ns, limit, spans_per_set, with_sets)
        return Stream(search(query, source, check), dict)

    def warm(self) -> None:
        pass


LANGUAGE = TraceQl()


class SearchPlan(RowPlan):
    """A search. Metrics queries are searches for the spans that they would count."""

    language: ClassVar[str] = TraceQl.name
    schema = SCHEMA
    together = True

    def __init__(self, query: ast.Query, times: QueryTimes, options: QueryOptions) -> None:
        if times.end_ns < times.start_ns:
            raise BadInput("cannot search traces: the end is before the start")
        self.canonical, self.times, self.options = print_query(query), times, options
        self.pipeline = _pipeline_of(query.root)
        limit = options.limit if options.limit is not None else 20
        self.scan = RowScan(
            TRACES,
            columns=tuple(SCHEMA.names),
            start_ns=times.start_ns - REACH_NS,
            end_ns=times.end_ns + REACH_NS,
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
                "search": [*times, self.spans_per_set],
                "with_sets": self.with_sets,
            }
        )

    def schema_payload(self) -> bytes:
        raise Bug("cannot ask for the columns of a search: they are known")


def _pipeline_of(root: ast.Pipeline | ast.MetricExpr) -> ast.Pipeline:
    if isinstance(root, ast.Pipeline):
        return root
    if isinstance(root, ast.Metric):
        fields = () if isinstance(root.aggregate, ast.Compare) else root.aggregate.by
        return ast.Pipeline((*root.pipeline.stages, ast.Select(fields))) if fields else root.pipeline
    raise BadInput("cannot search with a calculation of metrics", hint="search with one of its pipelines")
