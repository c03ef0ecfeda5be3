"""A trace by its id, as a language of the lake: the text is the id, the answer all its spans, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from lakerunner.model.errors import BadInput, Bug
from lakerunner.model.signals.traces import TRACES
from lakerunner.query.language import Check, Plan, QueryOptions, RowPlan, Source, Stream
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.scan.rows.conditions.predicate import Column, Compare, Op, Text
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.warm import SHARES
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.tree import dumps, loads
from lakerunner.query.traces.spans import SCHEMA, SpanShape
from lakerunner.query.traces.trace_id import full_trace_id
from lakerunner.runtime.kernels import Share


class Traces:
    name = "traces"

    def compile(self, text: str, times: QueryTimes, options: QueryOptions) -> Plan:
        """The spans that start from `times.start_ns` up to, and without, `times.end_ns`."""
        if times.end_ns < times.start_ns:
            raise BadInput("cannot read a trace: the end is before the start")
        trace_id = full_trace_id(text)
        predicate = Compare(Column("trace_id"), Op.EQUAL, Text(trace_id))
        scan = RowScan(TRACES, predicate, None, times.start_ns, times.end_ns, newest_first=False, limit=options.limit)
        return TracePlan(trace_id, scan, times, options)

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        scan = RowScan.from_json(loads(payload)["scan"])
        return Stream(source.rows(scan, SpanShape()), dict)

    def kernels(self) -> Sequence[Share]:
        return SHARES


LANGUAGE = Traces()


class TracePlan(RowPlan):
    language: ClassVar[str] = Traces.name
    schema = SCHEMA

    def __init__(self, trace_id: str, read: RowScan, times: QueryTimes, options: QueryOptions) -> None:
        self.trace_id, self._read = trace_id, read
        self.times, self.options = times, options
        # What is asked of workers: each of them reads the stored columns itself.
        self.scan = replace(read, columns=tuple(SCHEMA.names))
        self.canonical = trace_id
        self.leaves = (Leaf(TRACES.name, read.start_ns, read.end_ns),)

    def payload(self, limit: int | None) -> bytes:
        return dumps({"scan": replace(self._read, limit=limit).to_json()})

    def schema_payload(self) -> bytes:
        raise Bug("cannot ask for the columns of a trace: they are known")
