"""Read JSON lines: one record per line, or one array of records. A bad line is counted and skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lakerunner.formats.attributes import Entry
from lakerunner.formats.decoded import Tally, excerpt_of
from lakerunner.formats.limits import Limits
from lakerunner.formats.options import Options
from lakerunner.formats.records.records import Records
from lakerunner.formats.records.tables import record_tables
from lakerunner.model.signal import Signal

_INT64 = range(-(1 << 63), 1 << 63)


def read_jsonl(data: bytes, signal: Signal, limits: Limits, options: Options) -> tuple[dict[str, pa.Table], Tally]:
    tally = Tally()
    columns = _Columns(limits, tally)
    lines = []
    for number, line, document in documents(data, limits, tally):
        if not isinstance(document, dict):
            tally.reject("not_an_object", where=f"line {number}", excerpt=excerpt_of(line))
        elif columns.add(document):
            lines.append((number, line))
        else:
            tally.reject("nesting_depth", where=f"line {number}", excerpt=excerpt_of(line))

    def describe(row: int) -> tuple[str, str]:
        number, line = lines[row]
        return f"line {number}", excerpt_of(line)

    records = Records(columns.row_count, columns.entries(), describe, tally)
    return record_tables(records, signal, limits, options), tally


def documents(data: bytes, limits: Limits, tally: Tally) -> Iterator[tuple[int, bytes, Any]]:
    """Yield every JSON document with its line number and line.

    The elements of an array are documents. A single document may span many lines.
    """
    whole = _whole(data)
    if isinstance(whole, list):
        yield from ((number, b"", element) for number, element in enumerate(whole, 1))
        return
    if whole is not None:
        yield 1, data, whole
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.strip()
        if not line:
            continue
        if len(line) > limits.line_bytes:
            tally.reject("line_bytes", where=f"line {number}", excerpt=excerpt_of(line))
            continue
        try:
            yield number, line, _loads(line, tally)
        except orjson.JSONDecodeError as reason:
            excerpt = excerpt_of(line[max(reason.pos - 40, 0) :])
            tally.reject("bad_json", where=f"line {number}, byte {reason.pos}", excerpt=excerpt)


def _loads(line: bytes, tally: Tally) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as reason:
        if "utf-8" in reason.msg.lower():
            document = orjson.loads(line.decode("utf-8", "replace"))
            tally.shorten("invalid_utf8", 1)
            return document
        # Python's loggers write NaN and Infinity, which are not JSON.
        if b"NaN" not in line and b"Infinity" not in line:
            raise
        try:
            document = json.loads(line, parse_int=_whole_or_float)
            # Python's parser accepts lone surrogates, which Arrow text cannot hold; orjson refuses them.
            orjson.dumps(document)
            return document
        except (ValueError, TypeError, RecursionError):
            pass
        raise


def _whole_or_float(digits: str) -> int | float:
    """Read a whole number as orjson does: as a float if it may not fit 64 bits."""
    return int(digits) if len(digits) < 19 else float(digits)


def _whole(data: bytes) -> Any:
    """Parse the data as one document, or return None where its first line is a document already."""
    first, _, rest = data.lstrip().partition(b"\n")
    if rest.strip() and not first.startswith(b"["):
        try:
            orjson.loads(first)
            return None
        except orjson.JSONDecodeError:
            if first.rstrip() != b"{":
                return None
    elif not first.startswith(b"["):
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


class _Columns:
    """Collects the values of all records by key and type."""

    def __init__(self, limits: Limits, tally: Tally) -> None:
        self.row_count = 0
        self._limits = limits
        self._tally = tally
        self._values: dict[tuple[str, type], tuple[list[int], list[Any]]] = {}

    def add(self, document: dict[str, Any]) -> bool:
        """Add the record. Return False if it is nested too deeply."""
        flat: list[tuple[str, Any]] = []
        if not _flatten(document, "", flat, self._limits.nesting_depth):
            return False
        if len(flat) > self._limits.attributes_per_row:
            self._tally.shorten("attributes_per_row", 1)
            del flat[self._limits.attributes_per_row :]
        row, values = self.row_count, self._values
        for key, value in flat:
            slot = values.get((key, type(value)))
            if slot is None:
                slot = values[key, type(value)] = ([], [])
            slot[0].append(row)
            slot[1].append(value)
        self.row_count += 1
        return True

    def entries(self) -> list[Entry]:
        types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
        return [
            Entry(key, np.array(rows, np.int64), pa.array(values, types[kind]), np.arange(len(rows)))
            for (key, kind), (rows, values) in self._values.items()
        ]


def _flatten(document: dict[str, Any], prefix: str, flat: list[tuple[str, Any]], depth: int) -> bool:
    if depth <= 0:
        return False
    for key, value in document.items():
        kind = type(value)
        if kind is dict:
            if not _flatten(value, f"{prefix}{key}.", flat, depth - 1):
                return False
        elif kind is list:
            flat.append((prefix + key, orjson.dumps(value).decode()))
        elif kind is int and value not in _INT64:
            flat.append((prefix + key, str(value)))
        elif value is not None:
            flat.append((prefix + key, value))
    return True
