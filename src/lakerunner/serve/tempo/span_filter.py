"""The filter `q` of `/api/v2/traces/{id}`: the spans of a trace that satisfy it, with their ancestors if asked for."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import BadInput
from lakerunner.model.time import MAX_TIME_NS
from lakerunner.query.language import QueryOptions
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import SearchPlan, compiled
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.params import Params
from lakerunner.serve.service import QueryService, Question
from lakerunner.serve.trace_reader import MAX_SPANS, FoundTrace


@dataclass(frozen=True, slots=True)
class SpanFilter:
    condition: ast.FieldExpr | None
    keep_hierarchy: bool
    #: Levels above and below a match that are kept with it; None: all above.
    ancestor_depth: int | None
    match_depth: int

    @classmethod
    def of(cls, params: Params) -> SpanFilter | None:
        """The filter of a request; None if it has none."""
        text = params.text("q")
        if not text.strip():
            return None
        root = compiled(text).root
        stages = root.stages if isinstance(root, ast.Pipeline) else ()
        if len(stages) != 1 or not isinstance(stages[0], ast.Filter):
            raise BadInput(
                "invalid TraceQL filter: only a single filter is supported, not a structural or aggregate query",
                where="q",
                hint='give one pair of braces, as in { span.http.method = "GET" }',
            )
        depth = params.count("ancestor_depth") if params.text("ancestor_depth") else None
        return cls(stages[0].condition, params.flag("keep_hierarchy"), depth, params.count("match_depth"))

    def applied(self, service: QueryService, query: RunningQuery, found: FoundTrace) -> pa.Table:
        """The spans of the trace that are kept."""
        if not len(found):
            return found.spans
        kept = self._matching(service, query, found)
        if self.keep_hierarchy:
            kept = self._with_relatives(found.spans, kept)
        return found.spans.filter(
            pc.is_in(found.spans.column("span_id"), value_set=pa.array(sorted(kept), pa.string()))
        )

    def _matching(self, service: QueryService, query: RunningQuery, found: FoundTrace) -> set[str]:
        of_trace = ast.Binary("=", ast.Intrinsic("trace:id"), ast.Literal(ast.STRING, found.trace_id))
        condition = of_trace if self.condition is None else ast.Binary("&&", of_trace, self.condition)
        times = QueryTimes.of_ns(0, MAX_TIME_NS, 0)
        plan = SearchPlan(ast.Query(ast.Pipeline((ast.Filter(condition),))), times, QueryOptions(limit=1))
        plan.spans_per_set = MAX_SPANS
        batches, _ = service.rows(plan, Question("traceql", "", times), query, only=found.segments)
        documents = [orjson.loads(text) for batch in batches for text in batch.column("document").to_pylist()]
        sets = [each for one in documents for each in (one.get("spanSets") or [one.get("spanSet") or {}])]
        return {span["spanID"].rjust(16, "0") for each in sets for span in each.get("spans", [])}

    def _with_relatives(self, spans: pa.Table, kept: set[str]) -> set[str]:
        parents = dict(
            zip(spans.column("span_id").to_pylist(), spans.column("parent_span_id").to_pylist(), strict=True)
        )
        found = set(kept)
        level, depth = set(kept), 0
        while level and (self.ancestor_depth is None or depth < self.ancestor_depth):
            level = {parents[each] for each in level if parents.get(each) in parents} - found
            found |= level
            depth += 1
        below = set(kept)
        for _ in range(self.match_depth):
            below = {span for span, parent in parents.items() if parent in below} - found
            if not below:
                break
            found |= below
        return found
