"""The answer of a log query that only compares labels, for few rows: JSON straight from the stored columns.

Makes what `records.py`, `entries.py` and `answer.py` make together, where no rule about equal names, other spellings or
derived fields is needed; else it makes nothing, and those do. A call of an Arrow kernel takes about ten microseconds,
and a log record has 25 labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from lakerunner.formats.attributes import KEYS_METADATA, OVERFLOW, keys_of
from lakerunner.model.labels import loki_label
from lakerunner.model.signals.logs import DERIVED, REPEAT, SPELLED
from lakerunner.query.logql import ast
from lakerunner.query.logql.answer import SCHEMA
from lakerunner.query.logql.entries import plain
from lakerunner.query.logql.object_kernel import objects
from lakerunner.query.logql.records import (
    ALWAYS,
    DEFAULTS,
    DETECTED_LEVEL,
    FIELDS,
    LEVELS,
    LINE,
    SCOPE_FIELDS,
    SERVICE_NAME,
    STREAM_KEYS,
    TIME,
    few_texts,
    filled,
    lines_of,
    sent,
)
from lakerunner.query.series.matchers import Matcher, MatchKind

#: Up to so many rows.
FEW_ROWS = 512
#: Where these are zero, the sender has not given them.
_COUNTS = frozenset({"flags", "dropped_attributes_count"})
#: Where these have values, labels depend on rules.
_SPECIAL = frozenset({REPEAT, SPELLED, OVERFLOW, DERIVED})


@dataclass(frozen=True, slots=True)
class _Layout:
    """The labels of each category, sorted, and their columns."""

    stream: tuple[tuple[str, str], ...]
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Equality:
    """Whether a label has the value, or has not. An entry without the label counts as one with an empty value."""

    label: str
    value: str
    negated: bool

    def accepts(self, value: str | None) -> bool:
        return ((value or "") == self.value) is not self.negated


def equalities(matchers: Iterable[Matcher], stages: Iterable[ast.Stage]) -> tuple[Equality, ...] | None:
    """What a query compares, if that is all that it does; else None."""
    left: list[object] = [
        *matchers,
        *(each.condition if isinstance(each, ast.LabelFilter) else each for each in stages),
    ]
    found = []
    while left:
        match left.pop():
            case ast.AndFilter(first, second):
                left += [second, first]
            case ast.StringFilter(matcher):
                left.append(matcher)
            case Matcher(name, MatchKind.EQUAL | MatchKind.NOT_EQUAL as kind, value):
                found.append(Equality(name, value, kind is MatchKind.NOT_EQUAL))
            case _:
                return None
    return tuple(found)


def stored_answer(rows: pa.RecordBatch, wanted: Sequence[Equality]) -> pa.RecordBatch | None:
    """The answer, or None: the rows need rules."""
    schema = rows.schema
    columns = dict(zip(schema.names, rows.columns, strict=True))
    live = tuple(
        name
        for name, values in columns.items()
        if values.null_count < len(values) and not (pa.types.is_nested(values.type) and name not in _SPECIAL)
    )
    layout = _layout(live, (schema.metadata or {}).get(KEYS_METADATA, b""))
    if layout is None:
        return None
    keep = _accepted(rows, columns, layout, wanted)
    if keep is not None:
        rows = rows.filter(pa.array(keep))
        columns = dict(zip(schema.names, rows.columns, strict=True))
    stream = _objects(rows, columns, layout.stream)
    return pa.RecordBatch.from_arrays(
        [
            columns[TIME].cast(SCHEMA.field(0).type),
            lines_of(rows),
            stream.dictionary_encode(),
            _objects(rows, columns, layout.metadata),
            pa.array(["{}"] * rows.num_rows, pa.string()),
        ],
        schema=SCHEMA,
    )


def _accepted(
    rows: pa.RecordBatch, columns: dict[str, pa.Array], layout: _Layout, wanted: Sequence[Equality]
) -> list[bool] | None:
    """Which rows have what is wanted; None: all."""
    keep = None
    places = {label: column for labels in (layout.stream, layout.metadata) for label, column in labels}
    for each in wanted:
        column = places.get(each.label)
        values = [None] * rows.num_rows if column is None else _texts(rows, columns, each.label, column).to_pylist()
        found = [each.accepts(value) for value in values]
        if not all(found):
            keep = found if keep is None else [one and other for one, other in zip(keep, found, strict=True)]
    return keep


def _objects(
    rows: pa.RecordBatch, columns: dict[str, pa.Array], labels: tuple[tuple[str, str], ...]
) -> pa.StringArray:  # fmt: skip
    texts = [_texts(rows, columns, label, column) for label, column in labels]
    return objects(tuple(label for label, _ in labels), texts, empty=False)


def _texts(rows: pa.RecordBatch, columns: dict[str, pa.Array], label: str, column: str) -> pa.StringArray:
    if label in ALWAYS:
        return plain(filled(rows, column, DEFAULTS[label]))
    values = columns[column]
    if column in _COUNTS:
        return pa.array([str(value) if value else None for value in values.to_pylist()], pa.string())
    if label in FIELDS:
        values = sent(values, column, None)
    if pa.types.is_dictionary(values.type):
        return values.dictionary_decode()
    return values if pa.types.is_string(values.type) else few_texts(values)


@lru_cache(maxsize=512)
def _layout(live: tuple[str, ...], spellings: bytes) -> _Layout | None:
    """Where the labels come from, if these columns have values; None where that depends on the row."""
    if not _SPECIAL.isdisjoint(live):
        return None
    keys = keys_of(pa.schema([], metadata={KEYS_METADATA: spellings} if spellings else None))
    stream = {SERVICE_NAME: ALWAYS[SERVICE_NAME]}
    found = [(DETECTED_LEVEL, ALWAYS[DETECTED_LEVEL])]
    found += [(name, column) for name, (column, *_) in FIELDS.items() if column in live]
    found += [(name, name) for name in SCOPE_FIELDS if name in live]
    for column in live:
        level, _, rest = column.partition("_")
        if level not in LEVELS or column in SCOPE_FIELDS:
            continue
        key = keys.get(column, (rest,))[0]
        if level != "resource" or key not in STREAM_KEYS:
            found.append((loki_label(key), column))
        elif key != "service.name":
            if loki_label(key) in stream:
                return None
            stream[loki_label(key)] = column
    metadata = dict(found)
    if len(metadata) < len(found) or not metadata.keys().isdisjoint(stream) or LINE in metadata.values():
        return None
    return _Layout(tuple(sorted(stream.items())), tuple(sorted(metadata.items())))
