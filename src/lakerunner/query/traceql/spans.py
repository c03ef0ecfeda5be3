"""The spans of whole traces as columns, sorted by trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.scan.rows.conditions.id_runs import NO_IDS, Ids, concat_ids
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.fields import SERVICE_NAME, TRACE_STATE, level_of
from lakerunner.query.traceql.reading import AttributeReader, columns_of, json_values
from lakerunner.query.traceql.tree import Trees, trees_of
from lakerunner.query.traceql.values import DURATION, INT, KIND, NIL, STATUS, Mask, Values, concat
from lakerunner.store.nanos import join_nanos

_TEXTS = {
    "name": "name",
    "statusMessage": "status_message",
    "span:id": "span_id",
    "span:parentID": "parent_span_id",
    "trace:id": "trace_id",
    "instrumentation:name": "scope_name",
    "instrumentation:version": "scope_version",
    TRACE_STATE.name: "trace_state",
}
#: What every question about a trace needs.
BASE = (
    "span_id",
    "parent_span_id",
    "start_timestamp",
    "duration_ns",
    "name",
    "kind",
    "status_code",
    "service_name",
)
_KIND = ast.Intrinsic("kind")


def flat_columns(fields: Sequence[ast.Field]) -> tuple[str, ...]:
    """The columns that the fields need where spans are judged one by one."""
    base = ["start_timestamp", "duration_ns"]
    if ast.Intrinsic("status") in fields:
        base.append("status_code")
    if any(isinstance(field, ast.Attribute) and field.name == "service.name" for field in fields):
        base.append("service_name")
    return tuple(dict.fromkeys((*base, *stored_columns(fields))))


def stored_columns(fields: Iterable[ast.Field]) -> tuple[str, ...]:
    """The columns from which the fields are read, beside `BASE`."""
    found: dict[str, None] = {}
    for field in fields:
        if isinstance(field, ast.Attribute):
            if field.scope in ("event", "link"):
                found[f"{field.scope}s"] = None
            else:
                for scope in ("span", "resource") if not field.scope else (field.scope,):
                    found |= dict.fromkeys(columns_of(scope, field.name))
        elif field.name == "kind":
            found["kind"] = None
        elif field.name in _TEXTS:
            found[_TEXTS[field.name]] = None
        elif level_of(field) in ("event", "link"):
            found[f"{level_of(field)}s"] = None
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Items:
    """Events or links: the row of the span of each, and their values."""

    span: Ints
    values: Mapping[ast.Field, Values]


@dataclass(frozen=True, slots=True)
class Part:
    """The spans of one row group."""

    ids: Ids
    span_id: pa.Array
    parent_id: pa.Array
    start_ns: Ints
    duration_ns: Ints
    values: Mapping[ast.Field, Values]
    events: Items | None
    links: Items | None

    @classmethod
    def of(
        cls,
        batch: pa.RecordBatch,
        fields: Sequence[ast.Field],
        ids: Ids | None = None,
        *,
        others: Sequence[ast.Attribute] = (),
    ) -> Part:
        """The spans of a batch. Without the ids of their traces, whatever the fields do not need is left out.

        `others` are attributes that are listed but not compared.
        """
        flat = ids is None
        reader = AttributeReader(batch)
        size = batch.num_rows
        names = set(batch.schema.names)
        start_ns = start_times(batch)
        values: dict[ast.Field, Values] = {}
        if not flat or ast.Intrinsic("name") in fields:
            values[ast.Intrinsic("name")] = _texts(batch, "name", names)
        if not flat or ast.Intrinsic("status") in fields:
            values[ast.Intrinsic("status")] = _named(batch, "status_code", ast.STATUSES, STATUS, names)
        if not flat or _KIND in fields:
            values[_KIND] = _named(batch, "kind", ast.KINDS, KIND, names)
        if not flat or any(isinstance(field, ast.Attribute) and field.name == "service.name" for field in fields):
            values[SERVICE_NAME] = _texts(batch, "service_name", names)
        for field in fields:
            if isinstance(field, ast.Attribute):
                plain = ast.Attribute(field.scope, field.name)
                if field.scope in ("event", "link") or plain in values:
                    continue
                if field.scope:
                    values[plain] = reader.values(field.scope, field.name)
                else:
                    for scope in ("span", "resource"):
                        own = ast.Attribute(scope, field.name)
                        if own not in values:
                            values[own] = reader.values(scope, field.name)
            elif field.name in _TEXTS:
                values[field] = _texts(batch, _TEXTS[field.name], names)
        if others:
            listed = AttributeReader(batch, whole=True)
            values |= {each: listed.values(each.scope, each.name) for each in others if each not in values}
        none = pa.nulls(0 if flat else size, pa.string())
        return cls(
            ids or NO_IDS,
            none if flat else _plain(batch.column("span_id")),
            _plain(batch.column("parent_span_id")) if not flat and "parent_span_id" in names else none,
            start_ns,
            batch.column("duration_ns").to_numpy(zero_copy_only=False),
            values,
            _items(batch, "event", fields, start_ns, names),
            _items(batch, "link", fields, start_ns, names),
        )


def start_times(batch: pa.RecordBatch) -> Ints:
    found: Ints = batch.column("start_timestamp").view(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _texts(batch: pa.RecordBatch, column: str, names: set[str]) -> Values:
    """Texts that are never nil: what is missing is empty."""
    if column not in names:
        return Values.of_texts(pa.array([""] * batch.num_rows, pa.string()))
    return Values.of_texts(pc.fill_null(_plain(batch.column(column)), ""))


def _named(batch: pa.RecordBatch, column: str, known: Sequence[str], kind: int, names: set[str]) -> Values:
    if column not in names:
        return Values.numbers(kind, np.zeros(batch.num_rows))
    found = pc.index_in(_plain(batch.column(column)), value_set=pa.array(known, pa.string()))
    return Values.numbers(kind, pc.fill_null(found, 0).to_numpy(zero_copy_only=False))


def _items(
    batch: pa.RecordBatch, level: str, fields: Sequence[ast.Field], start_ns: Ints, names: set[str]
) -> Items | None:
    wanted = [field for field in fields if level_of(field) == level]
    if not wanted:
        return None
    column = f"{level}s"
    if column not in names:
        return Items(np.zeros(0, np.int64), {field: Values.nil(0) for field in wanted})
    array = batch.column(column)
    joined = join_nanos(pa.table([array], schema=pa.schema([pa.field(column, array.type)])))
    lists = joined.column(0).combine_chunks()
    items = lists.flatten()
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    span = np.repeat(np.arange(batch.num_rows), counts)
    values: dict[ast.Field, Values] = {}
    for field in wanted:
        if isinstance(field, ast.Attribute):
            values[field] = json_values(items.field("attributes"), field.name)
        elif field.name == "event:timeSinceStart":
            times = items.field("timestamp").cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
            present = times.is_valid().to_numpy(zero_copy_only=False)
            since = pc.fill_null(times, 0).to_numpy(zero_copy_only=False) - start_ns[span]
            values[field] = Values.numbers(DURATION, since, present)
        else:
            member = {"event:name": "name", "link:traceID": "trace_id", "link:spanID": "span_id"}[field.name]
            values[field] = Values.of_texts(pc.fill_null(items.field(member), ""))
    return Items(span, values)


class Spans:
    """Spans of whole traces. Rows of a trace lie together, in order of time."""

    _is_flat = False

    def __init__(self, parts: Sequence[Part]) -> None:
        code, trace_ids = concat_ids([part.ids for part in parts]).numbered()
        start = np.concatenate([np.zeros(0, np.int64), *(part.start_ns for part in parts)])
        ids = pa.chunked_array(
            [array for part in parts for array in (part.span_id,)] + [part.parent_id for part in parts], pa.string()
        ).dictionary_encode()
        numbers = pc.fill_null(ids.combine_chunks().indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        size = len(code)
        span, parent = numbers[:size], numbers[size:]
        kind = np.concatenate([np.zeros(0), *(part.values[_KIND].number for part in parts)])
        order = np.lexsort((kind, span, start, code))
        repeated = np.zeros(size, np.bool_)
        a, b = order[1:], order[:-1]
        # A client and a server that share an id are two spans; one without an id cannot be told from another.
        repeated[1:] = (code[a] == code[b]) & (start[a] == start[b]) & (span[a] == span[b]) & (kind[a] == kind[b])
        repeated[1:] &= span[a] >= 0
        order = order[~repeated]
        #: The trace of each span, ascending, and the ids of traces.
        self.trace: Ints = code[order]
        self.trace_ids: Ids = trace_ids
        self._span, self._parent = span[order], parent[order]
        self._ids = pa.concat_arrays([part.span_id for part in parts]) if parts else pa.array([], pa.string())
        self._order: Ints = order
        self.start_ns: Ints = start[order]
        self.duration_ns: Ints = np.concatenate([np.zeros(0, np.int64), *(part.duration_ns for part in parts)])[order]
        self._parts = parts
        self._values: dict[ast.Field, Values] = {}

    @classmethod
    def flat(cls, part: Part) -> Spans:
        """Spans of which nothing is asked that concerns their traces. They stay in the order of the file."""
        spans = cls.__new__(cls)
        spans._order, spans._parts, spans._values = np.arange(len(part.start_ns)), [part], {}
        spans._is_flat = True
        spans.start_ns, spans.duration_ns = part.start_ns, part.duration_ns
        return spans

    def __len__(self) -> int:
        return len(self._order)

    @property
    def places(self) -> Ints:
        """The place of each span among the rows of all parts."""
        return self._order

    def span_ids_at(self, rows: Ints) -> pa.Array:
        return self._ids.take(pa.array(self._order[rows]))

    @cached_property
    def trees(self) -> Trees:
        return trees_of(self.trace, self._span, self._parent)

    @cached_property
    def first(self) -> Ints:
        """The first row of each trace, and the number of rows at the end."""
        return np.searchsorted(self.trace, np.arange(len(self.trace_ids) + 1))

    @cached_property
    def trace_start_ns(self) -> Ints:
        return np.minimum.reduceat(self.start_ns, self.first[:-1]) if len(self) else np.zeros(0, np.int64)

    @cached_property
    def trace_end_ns(self) -> Ints:
        ends = self.start_ns + self.duration_ns
        return np.maximum.reduceat(ends, self.first[:-1]) if len(self) else np.zeros(0, np.int64)

    @cached_property
    def root(self) -> Ints:
        """The row of each trace's root, the last one where there are several; -1 where it has none."""
        roots = np.full(len(self.trace_ids), -1, np.int64)
        rows = np.flatnonzero(self._parent < 0)
        roots[self.trace[rows]] = rows
        return roots

    def values(self, field: ast.Field) -> Values:
        """A field of every span. Fields of events and links are in `items`."""
        found = self._values.get(field)
        if found is None:
            found = self._values[field] = self._read(field)
        return found

    def _read(self, field: ast.Field) -> Values:
        if isinstance(field, ast.Attribute):
            if field.parent:
                own = self.values(ast.Attribute(field.scope, field.name))
                up = self.trees.parent
                return own.take(np.where(up >= 0, up, 0)).only(up >= 0)
            if not field.scope:
                span = self.values(ast.Attribute("span", field.name))
                return span.or_else(self.values(ast.Attribute("resource", field.name)))
            return self._stored(field)
        match field.name:
            case "duration":
                return Values.numbers(DURATION, self.duration_ns)
            case "traceDuration":
                return Values.numbers(DURATION, (self.trace_end_ns - self.trace_start_ns)[self.trace])
            case "rootName" | "rootServiceName":
                source = ast.Intrinsic("name") if field.name == "rootName" else SERVICE_NAME
                rows = self.root[self.trace]
                found = self.values(source).take(np.where(rows >= 0, rows, 0)).only(rows >= 0)
                empty = Values.of_literal(ast.Literal(ast.STRING, "")).spread(len(self))
                return found.or_else(empty)
            case "span:childCount":
                return Values.numbers(INT, self.trees.children)
            case "nestedSetLeft":
                return Values.numbers(INT, self.trees.left)
            case "nestedSetRight":
                return Values.numbers(INT, self.trees.right)
            case "nestedSetParent":
                return Values.numbers(INT, self.trees.nested_parent())
        return self._stored(field)

    def _stored(self, field: ast.Field) -> Values:
        parts = [part.values[field] if field in part.values else Values.nil(len(part.start_ns)) for part in self._parts]
        return concat(parts) if self._is_flat else concat(parts).take(self._order)

    def attributes(self) -> list[ast.Attribute]:
        """The attributes that were read, of spans, resources and instrumentation scopes."""
        found = {field for part in self._parts for field in part.values if isinstance(field, ast.Attribute)}
        return sorted(found, key=lambda field: (field.scope, field.name))

    def items(self, level: str) -> Items:
        """The events or links of all spans."""
        offset = 0
        place = np.full(sum(len(part.start_ns) for part in self._parts), -1, np.int64)
        place[self._order] = np.arange(len(self))
        rows: list[Ints] = [np.zeros(0, np.int64)]
        found: dict[ast.Field, list[Values]] = {}
        for part in self._parts:
            items = part.events if level == "event" else part.links
            if items is None:
                continue
            rows.append(place[items.span + offset])
            offset += len(part.start_ns)
            for field, values in items.values.items():
                found.setdefault(field, []).append(values)
        span = np.concatenate(rows)
        order = np.flatnonzero(span >= 0)
        order = order[np.argsort(span[order], kind="stable")]
        return Items(span[order], {field: concat(values).take(order) for field, values in found.items()})

    def status_is_error(self) -> Mask:
        status = self.values(ast.Intrinsic("status"))
        found: Mask = (status.kind != NIL) & (status.number == ast.STATUSES.index("error"))
        return found
