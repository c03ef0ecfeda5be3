"""Row filters as a language of the lake: `service_name = "cart" and severity_number >= 17` over logs or traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from lakerunner.model.errors import BadInput
from lakerunner.model.signals import signal_named
from lakerunner.model.time import NS_PER_MS
from lakerunner.query.language import Check, Plan, QueryOptions, RowPlan, Source, Stream
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.rows.parser import parse
from lakerunner.query.rows.printer import printed
from lakerunner.query.scan.rows.conditions.predicate import EVERYTHING, And, Column, Compare, In, Op, Predicate, Text
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.warm import SHARES
from lakerunner.query.series.matchers import Matcher, MatchKind, any_of
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.tree import dumps, loads
from lakerunner.runtime.kernels import Share


class Rows:
    name = "rows"

    def compile(self, text: str, times: QueryTimes, options: QueryOptions) -> Plan:
        """The rows from `times.start_ms` up to, and without, `times.end_ms`. An empty text accepts every row."""
        predicate = parse(text) if text.strip() else EVERYTHING
        if times.end_ms < times.start_ms:
            raise BadInput("cannot read rows: the end is before the start")
        scan = RowScan(
            signal_named(options.signal),
            predicate,
            options.columns,
            times.start_ms * NS_PER_MS,
            times.end_ms * NS_PER_MS,
            options.newest_first,
            options.limit,
        )
        return RowsPlan(scan, times, options)

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        document = loads(payload)
        scan = RowScan.from_json(document["scan"])
        if document["schema_only"]:
            schema = source.row_schema(scan)
            return Stream(iter([pa.RecordBatch.from_pylist([], schema=schema)]), dict)
        return Stream(source.rows(scan), dict)

    def kernels(self) -> Sequence[Share]:
        return SHARES


LANGUAGE = Rows()


class RowsPlan(RowPlan):
    language: ClassVar[str] = Rows.name
    repeatable = True

    def __init__(self, scan: RowScan, times: QueryTimes, options: QueryOptions) -> None:
        self.scan, self.times, self.options = scan, times, options
        self.canonical = f"{scan.signal.name}: {printed(scan.predicate)}"
        self.leaves = (Leaf(scan.signal.name, scan.start_ns, scan.end_ns, implied_matchers(scan.predicate)),)

    def payload(self, limit: int | None) -> bytes:
        return dumps({"scan": replace(self.scan, limit=limit).to_json(), "schema_only": False})

    def schema_payload(self) -> bytes:
        return dumps({"scan": self.scan.to_json(), "schema_only": True})


def implied_matchers(predicate: Predicate) -> tuple[Matcher, ...]:
    """Matchers on columns that every row of the predicate satisfies: what segments are pruned by.

    >>> implied_matchers(parse('service_name = "cart" and severity_number >= 17'))
    (Matcher(name='service_name', kind=<MatchKind.EQUAL: '='>, value='cart'),)
    """
    found: list[Matcher] = []
    pending: list[Predicate] = [predicate]
    while pending:
        match pending.pop():
            case And(parts):
                pending += parts
            case Compare(Column(name), Op.EQUAL, Text(value)):
                found.append(Matcher(name, MatchKind.EQUAL, value))
            case In(Column(name), values):
                texts = [value.value for value in values if isinstance(value, Text)]
                if len(texts) == len(values):
                    found.append(any_of(name, texts))
    return tuple(found)
