"""Log entries in the forms that the command line gives them: text, JSON lines, CSV, Arrow, Parquet.

An entry has a time, a line, and labels as one JSON object. Lines and labels are hostile: anybody who writes a log line
chooses them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

import orjson
import pyarrow as pa

from lakerunner.cli.render import DataFormat, csv_line, json_bytes, shown
from lakerunner.cli.rows import cell, level_text, time_text, write_arrow, write_parquet

_CATEGORIES = ("stream", "metadata", "parsed")
_LEVELS = ("detected_level", "level", "severity_text")
_SERVICE = "service_name"


@dataclass(frozen=True, slots=True)
class Entry:
    time_ns: int
    line: str
    labels: Mapping[str, str]

    @property
    def level(self) -> str:
        return next((self.labels[name] for name in _LEVELS if name in self.labels), "")


@dataclass(frozen=True, slots=True)
class EntryStyle:
    """How entries are shown as text: with these labels, all labels, or none."""

    fields: Sequence[str] = ()
    attributes: bool = False
    colour: bool = False


def entries_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Entry]:
    for batch in batches:
        times = batch.column("timestamp").cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in _CATEGORIES]
        for time_ns, line, *labels in zip(times, batch.column("line").to_pylist(), *columns, strict=True):
            yield Entry(time_ns, line, {name: text for each in labels for name, text in orjson.loads(each).items()})


def write_entries(batches: Iterable[pa.RecordBatch], kind: DataFormat, style: EntryStyle) -> None:
    """Write entries to standard output, batch by batch."""
    match kind:
        case DataFormat.TEXT:
            write_text(entries_of(batches), sys.stdout, style)
        case DataFormat.JSON:
            write_json(entries_of(batches), sys.stdout.buffer, style)
        case DataFormat.CSV:
            write_csv(entries_of(batches), sys.stdout, style)
        case DataFormat.ARROW:
            write_arrow(with_columns(batches, style), sys.stdout.buffer)
        case DataFormat.PARQUET:
            write_parquet(with_columns(batches, style), sys.stdout.buffer)
    sys.stdout.flush()


def write_text(entries: Iterable[Entry], out: TextIO, style: EntryStyle) -> None:
    for entry in entries:
        out.write(text_line(entry, style) + "\n")


def text_line(entry: Entry, style: EntryStyle) -> str:
    """One line: time, level, service, the log line, and labels on demand."""
    parts = [time_text(entry.time_ns), level_text(shown(entry.level or None), colour=style.colour)]
    if _SERVICE in entry.labels:
        parts.append(shown(entry.labels[_SERVICE]))
    parts.append(shown(entry.line))
    names = style.fields or (sorted(entry.labels) if style.attributes else ())
    parts += [f"{shown(name)}={_quoted(entry.labels[name])}" for name in names if name in entry.labels]
    return "  ".join(parts)


def _quoted(value: str) -> str:
    text = shown(value)
    return f'"{text}"' if " " in text or not text else text


def write_json(entries: Iterable[Entry], out: BinaryIO, style: EntryStyle) -> None:
    """One object per line."""
    for entry in entries:
        out.write(json_bytes(document_of(entry, style)) + b"\n")


def document_of(entry: Entry, style: EntryStyle) -> dict[str, Any]:
    """The entry with the chosen labels, or with all."""
    names = [name for name in style.fields if name in entry.labels] if style.fields else entry.labels
    labels = {name: entry.labels[name] for name in names}
    return {"timestamp": time_text(entry.time_ns), "line": entry.line, "labels": labels}


def with_columns(batches: Iterable[pa.RecordBatch], style: EntryStyle) -> Iterator[pa.RecordBatch]:
    """The batches with one column per chosen label; as they are if none is chosen."""
    if not style.fields:
        yield from batches
        return
    for batch in batches:
        labels = [entry.labels for entry in entries_of([batch])]
        columns = {name: batch.column(name) for name in ("timestamp", "line")}
        for name in style.fields:
            # A label may be called as a column of every entry.
            column = f"label_{name}" if name in ("timestamp", "line") else name
            columns[column] = pa.array([each.get(name) for each in labels], pa.string())
        yield pa.record_batch(columns)


def write_csv(entries: Iterable[Entry], out: TextIO, style: EntryStyle) -> None:
    """A head and one record per entry: time, line, and the chosen labels or all of them as one JSON object."""
    out.write(csv_line(["timestamp", "line", *(style.fields or ["labels"])]))
    for entry in entries:
        labels = (
            [cell(entry.labels.get(name)) for name in style.fields]
            if style.fields
            else [orjson.dumps(dict(entry.labels)).decode()]
        )
        out.write(csv_line([time_text(entry.time_ns), cell(entry.line), *labels]))
