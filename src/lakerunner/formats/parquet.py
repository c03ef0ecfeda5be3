"""Read Parquet from any writer: columns by name, nested names joined by dots, maps as attributes."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.formats.attributes import OVERFLOW, Entry, Ints, as_text, keys_of
from lakerunner.formats.decoded import Tally
from lakerunner.formats.limits import Limits, refuse
from lakerunner.formats.options import Options
from lakerunner.formats.records.records import Records
from lakerunner.formats.records.tables import record_tables
from lakerunner.formats.spelling import Mask, spelled_rows
from lakerunner.model.errors import BadInput
from lakerunner.model.signal import Signal
from lakerunner.model.signals.logs import DERIVED, FINGERPRINT, LEVEL, REPEAT, SPELLED
from lakerunner.model.signals.traces import SENT

#: Columns that ingest makes itself, in segments of ours.
_OURS = (LEVEL, FINGERPRINT, DERIVED, SPELLED, REPEAT, SENT)
#: The members of OTLP's AnyValue, in the spellings of protobuf and JSON.
_ANY_VALUE = re.compile(r"\.(string|bool|int|double|array|kvlist|bytes)(_value|Value)$")


def read_parquet(data: bytes, signal: Signal, limits: Limits, options: Options) -> tuple[dict[str, pa.Table], Tally]:
    tally = Tally()
    table = _open(data, limits)

    def describe(row: int) -> tuple[str, str]:
        return f"row {row + 1}", str(table.slice(row, 1).to_pylist()[0])

    entries = list(_entries(table, limits, tally))
    records = Records(table.num_rows, entries, describe, tally)
    return record_tables(records, signal, limits, options), tally


def _open(data: bytes, limits: Limits) -> pa.Table:
    try:
        file = pq.ParquetFile(
            pa.BufferReader(data),
            # These two limits guard against footers that would allocate gigabytes.
            thrift_string_size_limit=limits.expanded_bytes,
            thrift_container_size_limit=10_000_000,
        )
        _check_size(file.metadata, limits)
        # Text stays dictionary-encoded until its expanded size is known: one long value may repeat a million times.
        leaves = [file.schema.column(i) for i in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts)
        return file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as reason:
        raise BadInput(
            f"cannot read the object as Parquet: {(str(reason) or 'malformed').splitlines()[0][:200]}",
            where=f"{len(data)} bytes",
            hint=f"it ends with {data[-12:].hex(' ')}",
        ) from None


def _check_size(metadata: pq.FileMetaData, limits: Limits) -> None:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if any(group.total_byte_size < 0 or group.num_rows < 0 for group in groups):
        raise pa.ArrowInvalid("a row group has a negative size")
    # Runs of equal values take no space in the file, but at least four bytes per value once they are read.
    cells = sum(group.num_rows for group in groups) * max(metadata.num_columns, 1)
    size = max(sum(group.total_byte_size for group in groups), cells * 4)
    if size > limits.expanded_bytes:
        raise refuse("expanded_bytes", limits.expanded_bytes, f"its columns expand to {size:,} bytes")


def _entries(table: pa.Table, limits: Limits, tally: Tally) -> Iterator[Entry]:
    originals = keys_of(table.schema)
    ours = {name: _column(table, name) for name in table.column_names if originals and name in _OURS}
    derived = ours.get(DERIVED)
    spelled = spelled_rows(ours[SPELLED]) if SPELLED in ours else {}
    for name in table.column_names:
        if name in ours:
            continue
        array = _column(table, name)
        if derived is not None and name in ("severity", "severity_number"):
            array = pc.if_else(pc.fill_null(pc.equal(derived, name), False), None, _decoded(array, limits))
        rows = np.arange(len(array))
        for key, chosen in _by_key(name, originals, spelled.get(name, {}), rows):
            part = array if len(chosen) == len(rows) else array.take(pa.array(chosen))
            yield from _flatten(key, part, chosen, limits, tally, limits.nesting_depth)


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _by_key(
    name: str, originals: dict[str, list[str]], spelled: Mapping[str, Mask], rows: Ints
) -> Iterator[tuple[str, Ints]]:
    """Yield the keys of a column, each with its rows."""
    usual = np.ones(len(rows), np.bool_)
    for key, unusual in spelled.items():
        usual &= ~unusual
        yield _key(name, {name: [key]}), rows[unusual]
    yield _key(name, originals), rows[usual]


def _key(name: str, originals: dict[str, list[str]]) -> str:
    """Return the key of a column. Attribute columns of our own tables yield their level and original key."""
    if name == OVERFLOW:
        return "attributes"
    for prefix in ("resource", "scope", "attr"):
        if name.startswith(f"{prefix}_"):
            return f"{prefix}.{originals.get(name, [name[len(prefix) + 1 :]])[0]}"
    return name


def _decoded(array: pa.Array, limits: Limits) -> pa.Array:
    """Decode a dictionary column; refuse the object if the decoded column would exceed the limit."""
    if not pa.types.is_dictionary(array.type):
        return array
    if pa.types.is_string(array.dictionary.type) or pa.types.is_binary(array.dictionary.type):
        size = pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0
        if size > limits.expanded_bytes:
            raise refuse("expanded_bytes", limits.expanded_bytes, f"one of its columns expands to {size:,} bytes")
    return array.dictionary_decode()


def _flatten(name: str, array: pa.Array, rows: Ints, limits: Limits, tally: Tally, depth: int) -> Iterator[Entry]:
    """Yield the values by key; `rows` has the row of each element of the array."""
    array = _decoded(array, limits)
    kind = array.type
    if not len(array):
        return
    if depth > 0 and pa.types.is_struct(kind) and kind.num_fields:
        for field, child in zip(kind, array.flatten(), strict=True):
            yield from _flatten(f"{name}.{field.name}", child, rows, limits, tally, depth - 1)
    elif depth > 0 and (pa.types.is_map(kind) or _is_pairs(kind)):
        yield from _map_entries(name, array, rows, limits, tally, depth - 1)
    else:
        if pa.types.is_duration(kind):
            name, array = name if name.endswith("_ns") else f"{name}_ns", _nanoseconds(array)
        valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        if len(valid):
            yield Entry(name, rows[valid], _plain(array, tally), valid)


def _is_pairs(kind: pa.DataType) -> bool:
    """Whether a list holds pairs of keys and values, as OTLP's attributes do."""
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return [field.name for field in kind.value_type] == ["key", "value"]


def _map_entries(name: str, array: pa.Array, rows: Ints, limits: Limits, tally: Tally, depth: int) -> Iterator[Entry]:
    """Yield the values of a map by key. Keys get the map's name as a prefix, unless it is a map of attributes."""
    prefix = "" if name.lower() in ("attributes", "labels", "tags") else f"{name}."
    lists = array.cast(pa.list_(array.type.field(0).type)) if pa.types.is_map(array.type) else array
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    row_of_pair = np.repeat(rows, lengths.to_numpy(zero_copy_only=False))
    keys, values = lists.flatten().flatten()
    keys = as_text(_plain(_decoded(keys, limits), tally)).dictionary_encode()
    # Decoded before it is split by key: the limit is on the whole column.
    values = _decoded(values, limits)
    codes = pc.fill_null(keys.indices, -1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(-1, len(keys.dictionary)), side="right")
    for code, key in enumerate(keys.dictionary.to_pylist()):
        index = order[ends[code] : ends[code + 1]]
        of_key = values.take(pa.array(index))
        for found in _flatten(f"{prefix}{key}", of_key, row_of_pair[index], limits, tally, depth):
            # An OTLP value is a struct in which one member is set: `attributes.k.string_value` is `k`.
            yield replace(found, key=_ANY_VALUE.sub("", found.key)) if pa.types.is_struct(values.type) else found


def _nanoseconds(array: pa.Array) -> pa.Array:
    """Durations as whole nanoseconds; null for one that 64 bits cannot hold."""
    unit = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[array.type.unit]
    counts = array.cast(pa.int64())
    fits = pc.less_equal(pc.abs(counts), np.iinfo(np.int64).max // unit)
    return pc.multiply(pc.if_else(fits, counts, pa.scalar(None, pa.int64())), unit)


def _plain(array: pa.Array, tally: Tally) -> pa.Array:
    """Convert the column to a type that attributes may have. Times keep their type: one may be the row's timestamp."""
    kind = array.type
    if pa.types.is_string(kind):
        return _valid_text(array, tally)
    if pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return array
    if kind == pa.uint64():
        # If a value exceeds int64, the whole column becomes text.
        fits = pc.all(pc.less_equal(array, np.uint64(np.iinfo(np.int64).max))).as_py()
        return array.cast(pa.int64()) if fits is not False else array.cast(pa.string())
    if pa.types.is_integer(kind):
        return array.cast(pa.int64())
    if pa.types.is_floating(kind):
        return array.cast(pa.float64())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _bytes_text(array.cast(pa.binary()))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _valid_text(array.cast(pa.string()), tally)
    if pa.types.is_decimal(kind):
        return array.cast(pa.string())
    texts = [None if value is None else orjson.dumps(value, default=str).decode() for value in array.to_pylist()]
    return pa.array(texts, pa.string())


def _valid_text(array: pa.Array, tally: Tally) -> pa.Array:
    """Replace invalid UTF-8. Parquet does not enforce it, and invalid text would fail much later."""
    try:
        array.validate(full=True)
        return array
    except pa.ArrowInvalid:
        raw = array.view(pa.binary()).to_pylist()
    texts = [None if value is None else value.decode("utf-8", "replace") for value in raw]
    repaired = [text for text in texts if text and "\ufffd" in text]
    tally.shorten("invalid_utf8", len(repaired), excerpt=next(iter(repaired), ""))
    return pa.array(texts, pa.string())


def _bytes_text(array: pa.Array) -> pa.Array:
    """Convert bytes to text: printable UTF-8 as is (old writers do not mark text), ids as hex, the rest as base64."""
    try:
        text = array.cast(pa.string())
        if not pc.any(pc.match_substring_regex(text, r"[\x00-\x08\x0e-\x1f]")).as_py():
            return text
    except pa.ArrowInvalid:
        pass
    lengths = set(pc.unique(pc.binary_length(array.drop_null())).to_pylist())
    render = bytes.hex if lengths <= {0, 8, 16} else _base64
    return pa.array([None if value is None else render(value) for value in array.to_pylist()], pa.string())


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
