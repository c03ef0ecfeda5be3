"""Reads the newest lines of a log query, up to a number."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.model.errors import Bug
from lakerunner.query.language import RowPlan
from lakerunner.query.logql.ast import LogSelector
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.series.times import QueryTimes
from lakerunner.serve.admission.running import RunningQuery
from lakerunner.serve.api import Api
from lakerunner.serve.loki.tallies import LOGQL
from lakerunner.serve.loki.times import Bounds
from lakerunner.serve.service import Question


def newest_lines(
    api: Api, query: RunningQuery, selector: LogSelector, bounds: Bounds, limit: int
) -> list[pa.RecordBatch]:
    times = QueryTimes.of_ns(bounds.start_ns, max(bounds.end_ns, bounds.start_ns + 1), 0)
    question = Question(LOGQL, print_expr(selector), times, limit=limit)
    plan = api.service.compile(question, query.caller)
    if not isinstance(plan, RowPlan):
        raise Bug(f"cannot read lines: the plan is a {type(plan).__name__}, not a RowPlan")
    batches, _ = api.service.rows(plan, question, query)
    return list(batches)
