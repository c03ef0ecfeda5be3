"""A lake of a few spans in memory, for properties of searches and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st

from lakerunner.formats.attributes import with_keys
from lakerunner.query.scan.rows.conditions.id_runs import Ids, ids_of
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.traceql import ast
from tests.differential.traceql import traces

T = TypeVar("T")
NOW_NS = 1_700_000_000_000_000_000
Span = dict[str, Any]


class Rows:
    def __init__(self, batch: pa.RecordBatch, segment: int) -> None:
        self._batch, self.segment = batch, segment

    def batch(self, columns: Sequence[str] | None, *, apart: bool = False) -> pa.RecordBatch:
        names = [name for name in self._batch.schema.names if columns is None or name in columns]
        return self._batch.select(names)

    def ids(self, column: str) -> Ids:
        return ids_of(self._batch.column(column))[0]

    def some(self, places: Any) -> Rows:
        return Rows(self._batch.take(pa.array(places)), self.segment)


class Segments:
    """Segments in memory, with row groups of a few rows. Every row is a candidate: predicates may be ignored."""

    def __init__(self, parts: Sequence[Sequence[Span]], rows: int = 4) -> None:
        self._groups: list[tuple[pa.RecordBatch, int]] = []
        for number, spans in enumerate(parts):
            table = table_of(sorted(spans, key=lambda span: (span["trace"], span["start"])))
            self._groups += [(table.slice(at, rows), number) for at in range(0, len(spans), rows)]

    def mapped(self, scan: RowScan, make: Callable[[Any], T]) -> Iterator[T]:
        for batch, segment in self._groups:
            rows = batch if scan.ids is None else batch.filter(pa.array(is_among(batch, scan.ids)))
            if rows.num_rows:
                yield make(Rows(rows, segment))


def is_among(batch: pa.RecordBatch, wanted: Ids) -> list[bool]:
    texts = {wanted.text(row) for row in range(len(wanted))}
    return [text in texts for text in batch.column("trace_id").to_pylist()]


def table_of(spans: Sequence[Span]) -> pa.RecordBatch:
    columns = {
        "trace_id": pa.array([span["trace"].rjust(32, "0") for span in spans], pa.string()),
        "span_id": pa.array([span["id"] for span in spans], pa.string()),
        "parent_span_id": pa.array([span["parent"] for span in spans], pa.string()),
        "start_timestamp": pa.array([NOW_NS + span["start"] for span in spans], pa.timestamp("ns", "UTC")),
        "duration_ns": pa.array([span["duration"] for span in spans], pa.int64()),
        "name": pa.array([span["name"] for span in spans], pa.string()),
        "kind": pa.array([span["kind"] for span in spans], pa.string()),
        "status_code": pa.array(["unset"] * len(spans), pa.string()),
        "service_name": pa.array(["s"] * len(spans), pa.string()),
        "attr_x": pa.array([span["x"] for span in spans], pa.float64()),
    }
    table = with_keys(pa.table(columns), {"attr_x": ["x"]}).combine_chunks()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


@st.composite
def lakes(draw: st.DrawFn) -> list[list[Span]]:
    """Traces without circles in up to three segments, with orphans, several roots, and spans that were sent twice."""
    parts: list[list[Span]] = [[], [], []]
    for trace in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 8))
        for number in range(size):
            parent = draw(st.sampled_from([None, "f" * 16, *(f"{trace}{other:015}" for other in range(number))]))
            span = {
                "trace": f"{trace + 1:x}",
                "id": f"{trace}{number:015}",
                "parent": parent,
                "start": draw(st.integers(0, 50)) * 1_000_000,
                "duration": draw(st.integers(0, 50)) * 1_000_000,
                "name": draw(st.sampled_from("abc")),
                "kind": draw(st.sampled_from(["client", "server"])),
                "x": draw(st.sampled_from([None, 0.0, 1.0, 2.5])),
            }
            for place in draw(st.lists(st.integers(0, 2), min_size=1, max_size=2)):
                parts[place].append(span)
    return parts


def once(parts: Sequence[Sequence[Span]]) -> list[Span]:
    """Every span of the lake once."""
    return list({(span["trace"], span["id"]): span for part in parts for span in part}.values())


def plain_traces(parts: Sequence[Sequence[Span]]) -> list[traces.Trace]:
    """The lake for brute force."""
    found: dict[str, traces.Trace] = {}
    for span in once(parts):
        trace = found.setdefault(span["trace"], traces.Trace(span["trace"]))
        fields: dict[str, traces.Value] = {
            "name": (ast.STRING, span["name"]),
            "kind": (ast.KIND, span["kind"]),
            "duration": (ast.DURATION, span["duration"]),
        }
        number = span["x"]
        kind = ast.INT if number is not None and number == int(number) else ast.FLOAT
        attributes = {} if number is None else {"x": (kind, number)}
        start_ns, end_ns = span["start"], span["start"] + span["duration"]
        own = traces.Span(
            *(span["trace"], span["id"], span["parent"] or "", start_ns, end_ns, fields),
            *(attributes, {}, {}, (), ()),
        )
        own.trace = trace
        trace.spans.append(own)
        trace.by_id[own.span_id] = own
    return list(found.values())
