"""The questions of the benchmark: as a row scan or a metric query of LogQL, and as SQL for the peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.log_scan.lines import NEEDLE, SEGMENT_NS, START_NS, Lake

from lakerunner.model.signals.logs import LOGS
from lakerunner.model.time import NS_PER_S
from lakerunner.query.language import RowSource
from lakerunner.query.logql import ast
from lakerunner.query.logql.eval.evaluator import evaluate
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.scanned import ScannedEntries
from lakerunner.query.scan.rows.conditions.predicate import Column, Compare, Op, Text
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.vectors.context import EngineOptions

#: Evaluates a metric query; returns the largest value of its answer.
Metric = Callable[[RowSource], int]
_STEP_NS = 60 * NS_PER_S
_BY_LEVEL = (
    "SELECT max(n) FROM (SELECT severity, CAST(floor(epoch(timestamp) / 60) AS BIGINT) AS m, count(*) AS n "
    "FROM {table} GROUP BY ALL)"
)
_BY_USER = "SELECT max(n) FROM (SELECT attr_user_id, count(*) AS n FROM {table} GROUP BY ALL)"
_JSON = (
    "SELECT max(n) FROM (SELECT json_extract_string(message, '$.level') AS level, count(*) AS n FROM {table} "
    "WHERE {where} AND CAST(json_extract_string(message, '$.took_ms') AS BIGINT) > 2000 GROUP BY ALL)"
)
_QUANTILE = (
    "SELECT CAST(floor(max(q)) AS BIGINT) FROM (SELECT service_name, quantile_cont(attr_duration_ms, 0.99) AS q "
    "FROM {table} GROUP BY ALL)"
)
_LINES = "SELECT timestamp, timestamp_nanos, message FROM {table} WHERE {where}"
_EXPORT = "SELECT * FROM {table} WHERE {where} ORDER BY timestamp DESC, timestamp_nanos DESC"
_LAST = f"{_EXPORT} LIMIT 100"


@dataclass(frozen=True)
class Case:
    name: str
    #: A scan whose rows are counted, or what evaluates a metric query.
    asked: RowScan | Metric
    #: The condition in SQL, and the query, in which `{table}` and `{where}` are replaced.
    where: str
    #: The columns that an answer needs, and the text that it looks for in the message: what the floor reads.
    needs: tuple[str, ...]
    text: str = ""
    #: The share of the bytes of a full scan that a fresh process may read.
    most_bytes: float | None = None
    #: Whether the floor does what the case asks for: it matches no patterns, and reads no other columns of found rows.
    has_floor: bool = True
    #: Whether it takes the same time however many rows the lake has.
    is_flat: bool = False
    sql: str = "SELECT count(*) FROM {table} WHERE {where}"
    #: Whether the query returns rows, which are counted, and not one number.
    returns_rows: bool = False


def largest(text: str, *steps_ns: int) -> Metric:
    """The largest value of a query at the steps, evaluated as a worker does it."""
    expr = parse(text)
    assert not isinstance(expr, ast.LogSelector)

    def ask(source: RowSource) -> int:
        entries = ScannedEntries(source, lambda: None)
        block = evaluate(expr, np.array(steps_ns, np.int64), entries, lambda: None, EngineOptions())
        return int(block.values[block.valid].max())

    return ask


def cases(lake: Lake) -> list[Case]:
    every = '{service_name=~".+"}'
    end_ns = START_NS + len(lake.segments) * SEGMENT_NS

    def count(name: str, stage: str, where: str, needs: str, **more: Any) -> Case:
        """How many entries pass a stage."""
        return Case(
            name, largest(f"sum(count_over_time({every} {stage} [1y])) or vector(0)", end_ns), where, (needs,), **more
        )

    def text(name: str, needle: str, most_bytes: float | None = None) -> Case:
        where = f"contains(message, '{needle}')"
        return count(name, f"|= `{needle}`", where, "message", text=needle, most_bytes=most_bytes)

    def pattern(name: str, expression: str) -> Case:
        where = f"regexp_matches(message, '{expression}')"
        return count(name, f"|~ `{expression}`", where, "message", has_floor=False)

    service = Compare(Column("service_name"), Op.EQUAL, Text("service-07"))
    of_service = "service_name = 'service-07'"
    times = ("timestamp", "timestamp_nanos")
    minutes = range(START_NS // _STEP_NS * _STEP_NS + _STEP_NS, end_ns + _STEP_NS, _STEP_NS)
    return [
        Case("count by level over time", largest(f"sum by (severity_text) (count_over_time({every}[1m]))", *minutes),
             "true", (*times, "severity"), sql=_BY_LEVEL),
        Case("count by a field of 20,000 values", largest(f"sum by (user_id) (count_over_time({every}[1y]))", end_ns),
             "true", (*times, "attr_user_id"), sql=_BY_USER),
        Case("volume of a service", largest(
                 'sum by (severity_text) (count_over_time({service_name="service-07"}[1m]))', *minutes),
             of_service, ("service_name", *times, "severity"), sql=_BY_LEVEL.replace("GROUP", "WHERE {where} GROUP")),
        Case("top 10 of a field", largest(f"topk(10, sum by (user_id) (count_over_time({every}[1y])))", end_ns), "true",
             ("attr_user_id",), sql=_BY_USER),
        Case("quantile of a field", largest(
                 f"quantile_over_time(0.99, {every} | unwrap duration_ms [1y]) by (service_name)", end_ns),
             "true", ("service_name", "attr_duration_ms"), sql=_QUANTILE),
        Case("json, filter, count by a field", largest(
                 f"sum by (level) (count_over_time({every} |= `charged payment` | json | took_ms > 2000[1y]))", end_ns),
             "contains(message, 'charged payment')", ("message",), "charged payment", sql=_JSON),
        text("an id in the line", lake.request_id, 0.02),
        text("an absent id", "0123456789abcdef", 0.005),
        text("a short number", NEEDLE),
        text("a frequent text", "charged payment"),
        pattern("pattern with a text", r"after=29\d\dms"),
        pattern("pattern in any case", "(?i)charged PAYMENT"),
        pattern("pattern without a text", r"[a-z]+-\d{4}[13579]\b"),
        count("a trace id", f"| trace_id=`{lake.trace_id}`", f"trace_id = '{lake.trace_id}'", "trace_id"),
        count("an id in a field", f"| request_id=`{lake.request_id}`", f"attr_request_id = '{lake.request_id}'",
              "attr_request_id"),
        Case("lines of a service", RowScan(LOGS, service, ("message",), ordered=False), of_service,
             ("service_name", *times, "message"), sql=_LINES, returns_rows=True),
        Case("last 100 of a service", RowScan(LOGS, service, limit=100), of_service, ("service_name", *times),
             is_flat=True, sql=_LAST, returns_rows=True),
        Case("export of a service", RowScan(LOGS, service), of_service, ("service_name", "message"), sql=_EXPORT,
             returns_rows=True, has_floor=False),
    ]  # fmt: skip
