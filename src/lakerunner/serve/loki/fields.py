"""Finds fields in log entries: their metadata, and what parsing their lines as JSON or logfmt would give.

It looks at a bounded number of entries. The parsers are those of queries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.model.errors import BadInput
from lakerunner.query.logql import ast
from lakerunner.query.logql.durations import parse_go_duration_ns
from lakerunner.query.logql.entries import ERROR, ERROR_DETAILS, Category, Entries, Mask, plain, valid
from lakerunner.query.logql.sizes import parse_size_bytes, rounded_size
from lakerunner.query.logql.stages.compile import compile_stage
from lakerunner.serve.rendering.streams import LINE, METADATA, PARSED, STREAM, TIME

_BOOLEANS = frozenset(["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"])
_INTEGER, _NOT_IN_NAMES = re.compile(r"[+-]?\d{1,19}", re.ASCII), re.compile(r"[^a-zA-Z0-9_]")
_ERRORS = (ERROR, ERROR_DETAILS)
_JSON, _LOGFMT = "json", "logfmt"
_DECODER, _BLANKS = json.JSONDecoder(strict=False), " \t\r\n"
_EXTRACTED = "_extracted"
#: Objects nested deeper have no path.
_MOST_DEEP = 20


@dataclass(slots=True)
class Field:
    """A field, with its values and the parsers that find it; none for metadata."""

    name: str
    values: set[str] = field(default_factory=set)
    parsers: dict[str, None] = field(default_factory=dict)
    #: Where it is in a JSON line.
    path: list[str] | None = None
    #: The type of the last value: by stream, then by time, metadata before what parsers find.
    kind: str = "string"
    place: tuple[int, int] = (-1, 0)
    #: The values as they are shown: sizes in one spelling, which queries accept.
    shown: set[str] = field(default_factory=set)

    def to_json(self) -> dict[str, object]:
        about: dict[str, object] = {
            "label": self.name,
            "type": self.kind,
            "cardinality": len(self.values),
            "parsers": list(self.parsers) or None,
        }
        return about | ({"jsonPath": self.path} if self.path else {})


def detect_fields(batches: Sequence[pa.RecordBatch], check: Callable[[], object]) -> list[Field]:
    """The fields of the entries, sorted by name."""
    fields: dict[str, Field] = {}
    table = pa.Table.from_batches(batches) if batches else None
    if table is None or not table.num_rows:
        return []
    # Stream by stream: the last value that is seen decides about the type of a field.
    streams = plain(table.column(STREAM).combine_chunks())
    table = table.set_column(table.schema.get_field_index(STREAM), STREAM, streams)
    table = table.sort_by([(STREAM, "ascending"), (TIME, "descending")])
    for row, document in enumerate(_documents(table, METADATA)):
        _see_all(fields, document, (row, 0))
    parsed = _Parsed.of(table, check)
    for row, (document, is_json) in enumerate(zip(_documents(table, PARSED), parsed.is_json.tolist(), strict=True)):
        _see_all(fields, document, (row, 1), _JSON if is_json else _LOGFMT)
    for parser, entries, rows in (
        (_JSON, parsed.as_json, np.flatnonzero(parsed.is_json)),
        (_LOGFMT, parsed.as_logfmt, np.flatnonzero(~parsed.is_json)),
    ):
        for (category, name), values in entries.columns.items():
            if category is Category.PARSED and name not in _ERRORS:
                for row, value in zip(rows.tolist(), plain(values).to_pylist(), strict=True):
                    if value is not None:
                        _see(fields, name, value, (row, 1), parser)
    _add_paths(fields, table)
    return [fields[name] for name in sorted(fields)]


def _add_paths(fields: dict[str, Field], table: pa.Table) -> None:
    for name, path in _paths(table):
        for known in (name, name + _EXTRACTED):
            if known in fields and _JSON in fields[known].parsers:
                fields[known].path = fields[known].path or path
                break


def _see_all(
    fields: dict[str, Field], labels: dict[str, str], place: tuple[int, int], parser: str | None = None
) -> None:
    for name, value in labels.items():
        if name not in _ERRORS:
            _see(fields, name, value, place, parser)


def _see(fields: dict[str, Field], name: str, value: str, place: tuple[int, int], parser: str | None = None) -> None:
    seen = fields.setdefault(name, Field(name))
    kind = kind_of(value)
    seen.values.add(value)
    if place >= seen.place:
        seen.kind, seen.place = kind, place
    if parser is not None:
        seen.parsers[parser] = None
    seen.shown.add(rounded_size(parse_size_bytes(value)) if parser is not None and kind == "bytes" else value)


def _documents(table: pa.Table, name: str) -> Iterator[dict[str, str]]:
    for text in plain(table.column(name).combine_chunks()).to_pylist():
        yield orjson.loads(text)


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The entries by the parser that reads their line: JSON, and logfmt for what is none."""

    is_json: Mask
    as_json: Entries
    as_logfmt: Entries

    @classmethod
    def of(cls, table: pa.Table, check: Callable[[], object]) -> _Parsed:
        entries = _entries(table)
        as_json = compile_stage(ast.Json())(entries, check)
        failed = as_json.label(ERROR)
        is_json = np.ones(len(entries), np.bool_) if failed is None else ~valid(failed)
        as_logfmt = compile_stage(ast.Logfmt())(entries.filtered(~is_json), check)
        return cls(is_json, as_json.filtered(is_json), as_logfmt)


def _entries(table: pa.Table) -> Entries:
    """The lines with the labels of their streams, after which parsed fields of equal names are renamed."""
    streams = plain(table.column(STREAM).combine_chunks()).dictionary_encode()
    documents = [orjson.loads(text) for text in streams.dictionary.to_pylist()]
    columns = {
        (Category.STREAM, name): pa.array([each.get(name) for each in documents], pa.string()).take(streams.indices)
        for name in sorted({name for each in documents for name in each})
    }
    lines = plain(table.column(LINE).combine_chunks())
    return Entries(table.column(TIME).cast(pa.int64()).to_numpy(), lines, columns)


def _paths(table: pa.Table) -> Iterator[tuple[str, list[str]]]:
    """The names of the fields of lines that are JSON objects, and where they are."""
    for line in plain(table.column(LINE).combine_chunks()).to_pylist():
        try:
            # What follows the first value is not read.
            document, _ = _DECODER.raw_decode(line.lstrip(_BLANKS))
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            yield from _members(document, [])


def _members(document: dict[str, object], path: list[str]) -> Iterator[tuple[str, list[str]]]:
    for key, value in document.items():
        here = [*path, key]
        if isinstance(value, dict):
            if len(here) < _MOST_DEEP:
                yield from _members(value, here)
        else:
            yield sanitized("_".join(here)), here


def sanitized(name: str) -> str:
    name = _NOT_IN_NAMES.sub("_", name)
    return f"_{name}" if name[:1].isdigit() else name


def kind_of(value: str) -> str:
    """The type of a value: `int`, `float`, `boolean`, `duration`, `bytes` or `string`.

    >>> [kind_of(text) for text in ("7", "1e3", "true", "3ms", "1.5KB", "a")]
    ['int', 'float', 'boolean', 'duration', 'bytes', 'string']
    """
    if _INTEGER.fullmatch(value) and -(1 << 63) <= int(value) < 1 << 63:
        return "int"
    if _reads(float, value) and value.isascii() and value.strip() == value and "_" not in value:
        return "float"
    if value in _BOOLEANS:
        return "boolean"
    if _reads(parse_go_duration_ns, value):
        return "duration"
    return "bytes" if _reads(parse_size_bytes, value) else "string"


def _reads(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (BadInput, ValueError):
        return False
    return True
