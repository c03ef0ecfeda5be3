"""Rows of logs and spans in the forms that the command line gives them: text, JSON lines, CSV, Arrow, Parquet.

Values are hostile: anybody who writes a log line chooses them. Text and JSON escape what a terminal would act upon.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TextIO

import orjson
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from lakerunner.cli.render import DataFormat, csv_line, json_bytes, shown, shows_colour
from lakerunner.formats.attributes import EXACT, OVERFLOW
from lakerunner.model.signal import Signal
from lakerunner.model.time import NS_PER_S

_RESET = "\x1b[0m"
#: Colours of levels by the first letter of their name: red, yellow, cyan, grey.
_COLOURS = {"F": "\x1b[31m", "E": "\x1b[31m", "W": "\x1b[33m", "I": "\x1b[36m", "D": "\x1b[90m", "T": "\x1b[90m"}
_LEVEL_WIDTH = 5
_ATTRIBUTE_PREFIXES = ("attr_", "scope_", "resource_")
_EPOCH = dt.datetime(1970, 1, 1)
#: A cell that begins so is a formula to spreadsheets.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_rows(batches: Iterable[pa.RecordBatch], kind: DataFormat, signal: Signal, *, attributes: bool = False) -> int:
    """To standard output, batch by batch; returns how many rows. All batches have one schema.

    Nothing but Parquet is held back: its file is gathered in memory, compressed, where the output is a pipe.
    """
    counted = _Counted(batches)
    match kind:
        case DataFormat.TEXT:
            write_text(counted, sys.stdout, signal, attributes=attributes, colour=shows_colour())
        case DataFormat.JSON:
            write_json(counted, sys.stdout.buffer)
        case DataFormat.CSV:
            write_csv(counted, sys.stdout)
        case DataFormat.ARROW:
            write_arrow(counted, sys.stdout.buffer)
        case DataFormat.PARQUET:
            write_parquet(counted, sys.stdout.buffer)
    sys.stdout.flush()
    return counted.rows


class _Counted:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def write_text(
    batches: Iterable[pa.RecordBatch], out: TextIO, signal: Signal, *, attributes: bool = False, colour: bool = False
) -> None:
    """One line per row: time, service, level or duration, message or name, and attributes on demand."""
    for batch in batches:
        for row in _rows(batch):
            out.write(text_line(row, signal, attributes=attributes, colour=colour) + "\n")


def text_line(row: dict[str, Any], signal: Signal, *, attributes: bool = False, colour: bool = False) -> str:
    parts = [time_text(row.get(signal.time_column))]
    if "service_name" in row:
        parts.append(shown(row["service_name"]))
    if "severity" in row:
        parts.append(level_text(shown(row["severity"]), colour=colour))
    if "status_code" in row:
        parts.append(shown(row["status_code"]))
    if row.get("duration_ns") is not None:
        parts.append(f"{row['duration_ns'] / 1e6:.3f}ms")
    parts += [shown(row[name]) for name in ("name", "message") if name in row]
    if attributes:
        parts += [f"{shown(name)}={_attribute(value)}" for name, value in _attributes(row)]
    return "  ".join(parts)


def level_text(level: str, *, colour: bool) -> str:
    padded = level.ljust(_LEVEL_WIDTH)
    code = _COLOURS.get(level[:1].upper()) if colour else None
    return f"{code}{padded}{_RESET}" if code else padded


def _attributes(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if value is not None and name.startswith(_ATTRIBUTE_PREFIXES):
            yield name, value
    yield from row.get(OVERFLOW) or ()


def _attribute(value: Any) -> str:
    text = shown(value)
    return f'"{text}"' if isinstance(value, str) and (" " in text or not text) else text


def write_json(batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    """One object per line, without absent values. Times are texts with nanoseconds; the overflow is spread out."""
    for batch in batches:
        times = [field.name for field in batch.schema if pa.types.is_timestamp(field.type)]
        for row in _rows(batch):
            document = {name: value for name, value in row.items() if value is not None and name != OVERFLOW}
            document |= {name: time_text(document[name]) for name in times if name in document}
            for name, value in row.get(OVERFLOW) or ():
                document.setdefault(name, value)
            out.write(json_bytes(document) + b"\n")


def write_csv(batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """A head and one record per row. Texts that a spreadsheet would compute get an apostrophe before them."""
    first = True
    for batch in batches:
        if first:
            out.write(csv_line(batch.schema.names))
            first = False
        times = [pa.types.is_timestamp(field.type) for field in batch.schema]
        columns = [_plain(column) for column in batch.columns]
        for values in zip(*columns, strict=True):
            cells = [time_text(value) if time else cell(value) for value, time in zip(values, times, strict=True)]
            out.write(csv_line(cells))


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return orjson.dumps(value, default=str).decode()
    return str(value)


def write_arrow(batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    """An Arrow stream. Of no rows it has no columns."""
    schema, batches = _schema(batches)
    with pa.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)


def write_parquet(batches: Iterable[pa.RecordBatch], out: BinaryIO) -> None:
    """A Parquet file, row groups as batches come. A pipe gets it at the end, since the writer must know its place."""
    schema, batches = _schema(batches)
    sink: BinaryIO = out if out.seekable() else io.BytesIO()
    with pa.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
    if isinstance(sink, io.BytesIO) and sink is not out:
        out.write(sink.getbuffer())


def _schema(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """The schema of the first batch, and all batches."""
    rest = iter(batches)
    first = next(rest, None)
    return (pa.schema([]), ()) if first is None else (first.schema, itertools.chain([first], rest))


def time_text(time_ns: int | None) -> str:
    """UTC with as many digits as the time has: none, milli-, micro- or nanoseconds.

    >>> time_text(1_700_000_000_000_000_000), time_text(1_500_000), time_text(-1)
    ('2023-11-14T22:13:20Z', '1970-01-01T00:00:00.001500Z', '1969-12-31T23:59:59.999999999Z')
    """
    if time_ns is None:
        return "-"
    seconds, rest = divmod(time_ns, NS_PER_S)
    moment = (_EPOCH + dt.timedelta(seconds=seconds)).isoformat()
    digits = f"{rest:09}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{moment}.{digits}Z" if digits else f"{moment}Z"


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    for values in zip(*map(_plain, batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _plain(array: pa.Array) -> Sequence[Any]:
    """Python values: times are nanoseconds, and numbers that JSON lacks are texts."""
    if pa.types.is_timestamp(array.type):
        kind = pa.timestamp("ns", array.type.tz)
        return list(array.cast(kind).cast(pa.int64()).to_pylist())
    if pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type):
        return _structs(array)
    values = list(array.to_pylist())
    return list(map(_number, values)) if pa.types.is_floating(array.type) else values


def _number(value: float | None) -> float | int | str | None:
    """Show whole numbers without a fraction: attributes that are numbers are stored as doubles."""
    if value is None or not math.isfinite(value):
        return value if value is None else str(value)
    return int(value) if value.is_integer() and abs(value) <= EXACT else value


def _structs(array: pa.Array) -> Sequence[Any]:
    """Lists of structs, such as the events of a span, with their times as texts."""
    kind = array.type.value_type
    times = [field.name for field in kind if pa.types.is_timestamp(field.type)]
    numbers = pa.struct([field.with_type(pa.int64()) if field.name in times else field for field in kind])
    lists: list[list[dict[str, Any]] | None] = array.cast(pa.list_(numbers)).to_pylist()
    return [
        None if one is None else [{**each, **{name: time_text(each[name]) for name in times}} for each in one]
        for one in lists
    ]
