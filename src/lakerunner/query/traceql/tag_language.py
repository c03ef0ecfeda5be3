"""Names and values of tags as a language of the lake: a plan of rows, each a scope and name, or a type and value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from lakerunner.model.errors import BadInput, Bug
from lakerunner.model.signals.traces import TRACES
from lakerunner.model.time import TimeRange
from lakerunner.query.language import Check, Plan, QueryOptions, RowPlan, Source, Stream
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.syntax.tree import dumps, loads
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import CODEC
from lakerunner.query.traceql.tags import TagQuery, find_tags
from lakerunner.runtime.kernels import Share

SCHEMA = pa.schema(
    [
        pa.field(TRACES.time_column, pa.timestamp("ns", "UTC")),
        pa.field("kind", pa.string()),
        pa.field("text", pa.string()),
    ]
)


class Tags:
    name = "traceql-tags"

    def compile(self, text: str, times: QueryTimes, options: QueryOptions) -> Plan:
        raise BadInput("cannot answer in this language: it has no text")

    def evaluate(self, payload: bytes, source: Source, check: Check) -> Stream:
        document = loads(payload)
        try:
            fields = tuple(CODEC.decode(each) for each in document["fields"])
            condition = CODEC.decode(document["condition"]) if document["condition"] else None
            filtered, unscoped = bool(document["filtered"]), bool(document.get("unscoped"))
            query = TagQuery(tuple(map(str, document["scopes"])), fields, condition, filtered, unscoped)
        except (ValueError, KeyError, TypeError) as reason:
            raise BadInput(f"cannot read an encoded query: {reason!r}") from None
        return Stream(_found(query, source, check), dict)

    def kernels(self) -> Sequence[Share]:
        return ()


def _found(query: TagQuery, source: Source, check: Check) -> Iterator[pa.RecordBatch]:
    pairs = sorted(find_tags(query, source, check))
    if pairs:
        times = pa.array([0] * len(pairs), pa.int64()).cast(SCHEMA.field(0).type)
        columns = [times, *(pa.array([pair[at] for pair in pairs], pa.string()) for at in (0, 1))]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


LANGUAGE = Tags()


class TagsPlan(RowPlan):
    """Reads whole segments that overlap the range: a tag of a segment is a tag of its hours."""

    language: ClassVar[str] = Tags.name
    schema = SCHEMA
    together = True

    def __init__(self, query: TagQuery, within: TimeRange, options: QueryOptions) -> None:
        self.query = query
        self.times, self.options = QueryTimes.of_ns(within.start_ns, within.end_ns, 0), options
        self.scan = RowScan(TRACES, columns=tuple(SCHEMA.names))
        self.canonical = f"{query}"
        self.leaves = (Leaf(TRACES.name, within.start_ns, within.end_ns),)

    def payload(self, limit: int | None) -> bytes:
        fields: tuple[ast.Field, ...] = self.query.fields
        return dumps(
            {
                "scopes": list(self.query.scopes),
                "fields": [CODEC.encode(field) for field in fields],
                "condition": "" if self.query.condition is None else CODEC.encode(self.query.condition),
                "filtered": self.query.filtered,
                "unscoped": self.query.unscoped,
            }
        )

    def schema_payload(self) -> bytes:
        raise Bug("cannot ask for the columns of tags: they are known")
