"""Read CSV with a header: each column is a key. Values stay text, unless the whole column is of one type."""

from __future__ import annotations

import csv as text_csv

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from lakerunner.formats.attributes import Entry
from lakerunner.formats.csv_header import cells_of, delimiter_of
from lakerunner.formats.decoded import Tally, excerpt_of
from lakerunner.formats.limits import Limits, refuse
from lakerunner.formats.options import Options
from lakerunner.formats.records.records import Records
from lakerunner.formats.records.tables import record_tables
from lakerunner.formats.text_encoding import valid_text
from lakerunner.model.errors import BadInput
from lakerunner.model.signal import Signal


def read_csv(data: bytes, signal: Signal, limits: Limits, options: Options) -> tuple[dict[str, pa.Table], Tally]:
    tally = Tally()
    data = valid_text(data, tally)
    header = data.split(b"\n", 1)[0]
    if len(header) > limits.line_bytes:
        raise refuse("line_bytes", limits.line_bytes, "its header is longer")
    delimiter = delimiter_of(header)
    names = _unique(_names(header, delimiter))
    table = _parse(data, delimiter, names, limits, tally)

    def describe(row: int) -> tuple[str, str]:
        values = [str(table.column(i)[row].as_py()) for i in range(min(table.num_columns, 20))]
        return f"row {row + 1}", delimiter.join(values)

    records = Records(table.num_rows, _entries(table), describe, tally)
    return record_tables(records, signal, limits, options), tally


def _names(header: bytes, delimiter: str) -> list[str]:
    text = header.decode("utf-8", "replace").strip("\r\n")
    try:
        return cells_of(text, delimiter)
    except text_csv.Error as reason:
        raise BadInput(f"cannot read the header of the CSV: {reason}", where="row 0", hint=text[:80]) from None


def _unique(names: list[str]) -> list[str]:
    """Make names unique: a repeated name gets a number, an empty one the column's position."""
    seen: dict[str, int] = {}
    unique = []
    for place, name in enumerate(names, 1):
        name = name or f"column_{place}"
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique


def _parse(data: bytes, delimiter: str, names: list[str], limits: Limits, tally: Tally) -> pa.Table:
    def on_bad_row(row: arrow_csv.InvalidRow) -> str:
        where = f"row {row.number - 1}" if row.number else "a row"
        tally.reject("wrong_number_of_columns", where=where, excerpt=excerpt_of(row.text.encode("utf-8", "replace")))
        return "skip"

    try:
        # One thread: Arrow numbers rows only then, and the tasks of a worker already use all of its cores.
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, column_names=names, skip_rows=1, block_size=limits.line_bytes
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=on_bad_row
            ),
            # Columns are read as text and typed afterwards: typing while reading fails on the first odd value.
            convert_options=arrow_csv.ConvertOptions(
                column_types={name: pa.string() for name in names}, strings_can_be_null=True, null_values=[""]
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowCapacityError) as reason:
        if "Empty CSV" in str(reason):
            return pa.table({name: pa.array([], pa.string()) for name in names})
        raise BadInput(
            f"cannot read the object as CSV: {str(reason).splitlines()[0][:200]}",
            where=f"{len(data)} bytes",
            hint=f"it begins with {excerpt_of(data[:80])}",
        ) from None


def _entries(table: pa.Table) -> list[Entry]:
    entries = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        if len(rows):
            entries.append(Entry(name, rows, _typed(array), rows))
    return entries


def _typed(array: pa.Array) -> pa.Array:
    """Convert to numbers or booleans if every value is one, written as we would write it (so no text is lost)."""
    if _all(array, r"^(0|-?[1-9]\d{0,17})$"):
        return array.cast(pa.int64())
    if _all(array, r"^-?(0|[1-9]\d*)\.\d+$"):
        return array.cast(pa.float64())
    if _all(array, r"^(true|false)$"):
        return array.cast(pa.bool_())
    return array


def _all(array: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(array, pattern)).as_py())
