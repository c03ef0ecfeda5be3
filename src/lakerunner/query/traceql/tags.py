"""Names and values of attributes and intrinsics in stored spans, distinct, with an optional filter on the spans.

Names come from the metadata of files where there is no filter; values from dictionaries where the column has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.formats.attributes import OVERFLOW, keys_of
from lakerunner.formats.spelling import spelled_rows
from lakerunner.formats.typed_attributes import Level, typed_attributes
from lakerunner.formats.unify_tables import exploded
from lakerunner.model.errors import LimitHit
from lakerunner.model.signals.logs import SPELLED
from lakerunner.model.signals.traces import SENT, TRACES
from lakerunner.query.language import Check, RowSource
from lakerunner.query.scan.rows.request import RowScan
from lakerunner.query.scan.rows.row_group.rows import ReadableRows
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.conditions import Conditions
from lakerunner.query.traceql.fields import SERVICE_NAME, level_of
from lakerunner.query.traceql.gathering import ENOUGH_ROWS, Gathered
from lakerunner.query.traceql.loading import load_traces
from lakerunner.query.traceql.pushdown import implied
from lakerunner.query.traceql.spans import BASE, Part, Spans, flat_columns, stored_columns
from lakerunner.query.traceql.values import ARRAY, BOOL, DURATION, FLOAT, INT, KIND, NIL, STATUS, STRING, Values

#: A name with its scope, or a value with its type.
Pair = tuple[str, str]
#: Distinct values of one answer. More are refused by name: no client lists them.
MAX_VALUES = 100_000
#: Level of a stored attribute -> its scope in TraceQL.
_SCOPES = {Level.RESOURCE: "resource", Level.SCOPE: "instrumentation", Level.SPAN: "span"}
_PREFIXES = {"resource": "resource", "scope": "instrumentation", "attr": "span"}
_SERVICE = (SERVICE_NAME.scope, SERVICE_NAME.name)
_SCOPE_FIELDS = ("scope_name", "scope_version")
#: Intrinsics that only a whole trace has.
_OF_TRACES = frozenset(
    ("rootName", "rootServiceName", "traceDuration", "span:childCount", "nestedSetLeft", "nestedSetRight")
) | {"nestedSetParent"}
_TYPES = {STRING: "string", INT: "int", FLOAT: "float", BOOL: "bool", DURATION: "int"}


@dataclass(frozen=True, slots=True)
class TagQuery:
    """What is asked: names of the scopes, or the values of the fields; of spans that satisfy the condition."""

    scopes: tuple[str, ...] = ()
    fields: tuple[ast.Field, ...] = ()
    condition: ast.FieldExpr | None = None
    #: Whether the request had a filter: statuses are then told by name.
    filtered: bool = False
    #: Whether names are asked for without a scope. With a filter, spans that have events or links then give none, as in
    #: Tempo.
    unscoped: bool = False


def find_tags(query: TagQuery, source: RowSource, check: Check) -> set[Pair]:
    if query.fields:
        return _values(query, source, check)
    return _names(query, source, check)


# -- names ----------------------------------------------------------------------------------------------------------


def _names(query: TagQuery, source: RowSource, check: Check) -> set[Pair]:
    fields = _fields_of(query.condition)

    def of_group(rows: ReadableRows) -> set[Pair]:
        if query.condition is None:
            items = [f"{scope}s" for scope in ("event", "link") if scope in query.scopes]
            return rows.remembered(
                ("tag names", query.scopes),
                lambda: _stored_names(rows.batch((SENT, SPELLED, OVERFLOW, *items)), query.scopes),
                _size_bytes,
            )
        batch = rows.batch(tuple({*BASE, *stored_columns(fields)}), apart=True)
        spans = Spans([Part.of(batch, fields, rows.ids("trace_id"))])
        chosen = np.sort(spans.places[Conditions(spans).mask(query.condition)])
        # Every span has a service, so its name is listed whatever the filter finds.
        found = {_SERVICE} & {(scope, _SERVICE[1]) for scope in query.scopes} if len(spans) else set()
        if not len(chosen):
            return found
        batch = rows.batch(None).take(pa.array(chosen))
        return found | _names_of_rows(_without_items(batch) if query.unscoped else batch, query.scopes)

    scan = RowScan(TRACES, columns=(TRACES.time_column,), ordered=False)
    found: set[Pair] = set()
    for names in source.mapped(scan, of_group):
        check()
        found |= names
    return found


def _without_items(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The spans that have neither events nor links."""
    for column in ("events", "links"):
        if column in batch.schema.names and pa.types.is_list(batch.schema.field(column).type):
            batch = batch.filter(pc.equal(pc.fill_null(pc.list_value_length(batch.column(column)), 0), 0))
    return batch


def _stored_names(batch: pa.RecordBatch, scopes: Iterable[str]) -> set[Pair]:
    """The names in a row group, by the metadata of its file."""
    stored = set(batch.schema.names)
    found: set[Pair] = set()
    for column, keys in keys_of(batch.schema).items():
        scope = _PREFIXES.get(column.partition("_")[0], "")
        if column not in _SCOPE_FIELDS:
            found |= {(scope, key) for key in keys}
    for name in (SENT, SPELLED):
        if name in stored:
            for column, marked in spelled_rows(batch.column(name)).items():
                scope = _PREFIXES.get(column.partition("_")[0], "")
                if name == SPELLED:
                    found |= {(scope, key) for key in marked}
                elif column in _SCOPE_FIELDS:
                    found.add((scope, column.partition("_")[2]))
    if OVERFLOW in stored:
        known = keys_of(batch.schema)
        for name, _ in exploded(batch.column(OVERFLOW)):
            prefix, _, rest = name.partition("_")
            found.add((_PREFIXES.get(prefix, ""), known.get(name, [rest])[0]))
    for scope in ("event", "link"):
        if f"{scope}s" in stored:
            found |= {(scope, key) for key in _item_keys(batch.column(f"{scope}s"))}
    return {(scope, name) for scope, name in found if scope in scopes}


def _names_of_rows(batch: pa.RecordBatch, scopes: Iterable[str]) -> set[Pair]:
    attributes = typed_attributes(batch).flatten()
    table = pa.table({"level": attributes.field(0), "key": attributes.field(1)})
    pairs = table.group_by(["level", "key"]).aggregate([]).to_pylist()
    found = {(_SCOPES[Level(row["level"])], row["key"]) for row in pairs if row["level"] in _SCOPES}
    for scope in ("event", "link"):
        if f"{scope}s" in batch.schema.names:
            found |= {(scope, key) for key in _item_keys(batch.column(f"{scope}s"))}
    return {(scope, name) for scope, name in found if scope in scopes}


def _item_keys(items: pa.Array) -> set[str]:
    """The keys in the attributes of events or links, each distinct document read once."""
    if not pa.types.is_list(items.type):
        return set()
    flat = items.flatten()
    documents = pc.unique(flat.field(flat.type.get_field_index("attributes"))).drop_null()
    if pa.types.is_dictionary(documents.type):
        documents = documents.dictionary_decode()
    found: set[str] = set()
    for document in documents.to_pylist():
        try:
            parsed = orjson.loads(document)
        except orjson.JSONDecodeError:
            continue
        if isinstance(parsed, dict):
            found.update(parsed)
    return found


# -- values ---------------------------------------------------------------------------------------------------------


def _values(query: TagQuery, source: RowSource, check: Check) -> set[Pair]:
    fields = tuple(dict.fromkeys((*query.fields, *_fields_of(query.condition))))
    if any(_needs_trace(field) for field in fields):
        parts: Iterator[set[Pair]] = iter([_of_spans(query, load_traces(source, None, fields, _FIRST, _LAST, check))])
    else:
        parts = _values_of_rows(query, fields, source)
    found: set[Pair] = set()
    for values in parts:
        check()
        found |= values
        if len(found) > MAX_VALUES:
            raise LimitHit(
                f"cannot list more than {MAX_VALUES:,} values of a tag", hint="narrow the filter or the time range"
            )
    return found


_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


def _values_of_rows(query: TagQuery, fields: Sequence[ast.Field], source: RowSource) -> Iterator[set[Pair]]:
    """The values of spans that are judged one by one. The few that a filter finds in a row group are put together."""
    columns = flat_columns(fields)

    def of_batch(batch: pa.RecordBatch) -> set[Pair]:
        return _of_spans(query, Spans.flat(Part.of(batch, fields)))

    def of_group(rows: ReadableRows) -> pa.RecordBatch | set[Pair]:
        if query.condition is not None:
            batch = rows.batch(columns, apart=True)
            return batch if batch.num_rows < ENOUGH_ROWS else of_batch(batch)
        what = "tag values", query.fields, query.filtered
        return rows.remembered(what, lambda: of_batch(rows.batch(columns, apart=True)), _size_bytes)

    gathered = Gathered()
    for part in source.mapped(RowScan(TRACES, implied(query.condition), columns, ordered=False), of_group):
        if isinstance(part, set):
            yield part
        else:
            yield from (of_batch(large) for large, _ in gathered.add(part))
    yield from (of_batch(rest) for rest, _ in gathered.rest())


def _size_bytes(pairs: set[Pair]) -> int:
    return 200 + sum(300 + len(text) for _, text in pairs)


def _needs_trace(field: ast.Field) -> bool:
    if isinstance(field, ast.Attribute):
        return field.parent
    return field.name in _OF_TRACES


def _of_spans(query: TagQuery, spans: Spans) -> set[Pair]:
    if not len(spans):
        return set()
    chosen = Conditions(spans).mask(query.condition)
    found: set[Pair] = set()
    for field in query.fields:
        level = level_of(field)
        if level in ("event", "link"):
            items = spans.items(level)
            if field in items.values:
                found |= _distinct(items.values[field].only(chosen[items.span]), query)
        else:
            found |= _distinct(spans.values(field).only(chosen), query)
    return found


def _distinct(values: Values, query: TagQuery) -> set[Pair]:
    _, first = values.groups()
    distinct = values.take(first)
    found: set[Pair] = set()
    if (distinct.kind == ARRAY).any():
        _, elements = distinct.elements()
        found |= _distinct(elements, query)
    for row in np.flatnonzero((distinct.kind != NIL) & (distinct.kind != ARRAY)).tolist():
        found.add(_pair(*distinct.plain(row), filtered=query.filtered))
    return found


def _pair(kind: int, value: object, *, filtered: bool) -> Pair:
    if kind == STATUS:
        # As Tempo has it: names where spans are filtered, else the numbers that it stores.
        return ("keyword", str(value)) if filtered else ("int", str(_STATUS_CODES[str(value)]))
    if kind == KIND:
        return ("", "") if filtered else ("int", str(_KIND_CODES[str(value)]))
    if kind == BOOL:
        return "bool", "true" if value else "false"
    if kind == FLOAT:
        assert isinstance(value, float)
        return "float", go_float(value)
    return _TYPES[kind], str(value)


_STATUS_CODES = {"unset": 0, "ok": 1, "error": 2}
_KIND_CODES = {"unspecified": 0, "internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}


def go_float(value: float) -> str:
    """Return a double as Tempo writes it: Go's shortest form, with a point or an exponent.

    >>> go_float(2.0), go_float(1e18), go_float(123456789.5), go_float(0.00001)
    ('2.0', '1e+18', '1.234567895e+08', '1e-05')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    scientific = str(np.format_float_scientific(value, trim="-", exp_digits=2))
    if value and not -4 <= int(scientific.partition("e")[2]) < 6:
        return scientific
    text = str(np.format_float_positional(value, trim="-"))
    return text if "." in text else f"{text}.0"


def _fields_of(expr: ast.FieldExpr | None) -> tuple[ast.Field, ...]:
    found: dict[ast.Field, None] = {}
    pending = [] if expr is None else [expr]
    while pending:
        match pending.pop():
            case ast.Binary() as binary:
                pending += [binary.left, binary.right]
            case ast.Unary() as unary:
                pending.append(unary.operand)
            case ast.Attribute() | ast.Intrinsic() as field:
                found[field] = None
    return tuple(found)
