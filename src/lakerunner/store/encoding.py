"""Choose the encoding of each column of a segment from a sample of its values. DuckDB and Spark can read them all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.signal import Table

#: The sample: this many runs of neighbouring rows. Runs, because a sorted column repeats values only in adjacent rows.
_RUNS, _RUN_ROWS = 16, 256
#: Above this share of distinct values in a row group, a dictionary would be as large as the column.
_DISTINCT_SHARE = 0.6
#: One lookup in a hundred reads a row group that does not contain the value. In twenty for attributes, whose filters
#: nobody asked for: they take a byte per row.
_BLOOM_FALSE_POSITIVES, _ATTRIBUTE_FALSE_POSITIVES = 0.01, 0.05
#: Attributes with long, distinct texts are ids. At most four of them get a bloom filter, in files that are not small.
_ID_DISTINCT_SHARE, _ID_BYTES = 0.95, 12
_MAX_ID_BLOOMS, _ID_BLOOM_ROWS = 4, 1_024


@dataclass(frozen=True, slots=True)
class Encodings:
    """Options for the Parquet writer, by path of the leaf column."""

    dictionary: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    blooms: dict[str, dict[str, float | int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of a file, and how many of them have a value, by column."""

    rows: int
    present: Mapping[str, int]

    @classmethod
    def of(cls, table: pa.Table) -> Counts:
        columns = zip(table.column_names, table.columns, strict=True)
        return cls(table.num_rows, {name: len(column) - column.null_count for name, column in columns})


def choose_encodings(
    description: Table, table: pa.Table, rows_per_group: int, counts: Counts | None = None
) -> Encodings:  # fmt: skip
    """Choose a dictionary where values repeat, else deltas for times and integers and byte splitting for floats.

    The table has all rows of the file, or a sample of them; `counts` are those of the file.
    """
    counts = counts or Counts.of(table)
    chosen = Encodings()
    fixed = {spec.name for spec in description.columns}
    ids: list[str] = []
    group_rows = max(1, min(rows_per_group, counts.rows))
    for name, column in zip(table.column_names, table.columns, strict=True):
        for path, leaf in _leaves(name, _sample(column)):
            if pa.types.is_dictionary(leaf.type) or _repeats(leaf, group_rows / max(1, len(leaf))):
                chosen.dictionary.append(path)
            elif encoding := _without_dictionary(leaf.type):
                chosen.others[path] = encoding
                if path == name and name not in fixed and _is_id(leaf):
                    ids.append(name)
    ndv = group_rows
    for spec in description.columns:
        if spec.bloom and counts.present.get(spec.name, 0):
            chosen.blooms[spec.name] = {"ndv": ndv, "fpp": _BLOOM_FALSE_POSITIVES}
    if description.attributes and counts.rows >= _ID_BLOOM_ROWS:
        for name in ids[:_MAX_ID_BLOOMS]:
            present = counts.present.get(name, 0) / counts.rows
            chosen.blooms[name] = {"ndv": max(1, int(ndv * present)), "fpp": _ATTRIBUTE_FALSE_POSITIVES}
    return chosen


def _sample(column: pa.ChunkedArray) -> pa.Array:
    """Return runs of rows spread over the column."""
    if len(column) <= _RUNS * _RUN_ROWS:
        chunks = column.chunks
    else:
        starts = np.linspace(0, len(column) - _RUN_ROWS, _RUNS).astype(int)
        chunks = [chunk for start in starts for chunk in column.slice(int(start), _RUN_ROWS).chunks]
    if pa.types.is_dictionary(column.type):
        # Its values are known to repeat, so only the type matters.
        return pa.array([], column.type)
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the leaf columns with their values, under the paths that Parquet uses."""
    if pa.types.is_struct(array.type):
        for index, child in enumerate(array.type):
            yield from _leaves(f"{path}.{child.name}", array.field(index))
    elif pa.types.is_map(array.type):
        yield from _leaves(f"{path}.key_value.key", array.keys)
        yield from _leaves(f"{path}.key_value.value", array.items)
    elif pa.types.is_list(array.type):
        yield from _leaves(f"{path}.list.element", array.values)
    else:
        yield path, array


def _repeats(leaf: pa.Array, times: float) -> bool:
    """Whether the values of a row group repeat, which has this many times the rows of the sample."""
    if pa.types.is_boolean(leaf.type):
        return False
    present: int = len(leaf) - leaf.null_count
    distinct: int = pc.count_distinct(leaf, mode="only_valid").as_py()
    return distinct <= _DISTINCT_SHARE * present or _more(distinct, present, times) <= _DISTINCT_SHARE * present * times


def _more(distinct: int, present: int, times: float) -> float:
    """How many distinct values this many times the rows have, as the repeats among these let expect.

    If n rows have values at random out of D, D (1 - exp(-n / D)) of them are distinct.

    >>> round(_more(3_703, 4_096, 32), -3), _more(4_096, 4_096, 32)
    (20000.0, 131072.0)
    """
    if times <= 1 or distinct >= present or not distinct:
        return float(distinct * max(times, 1.0))
    low, high = float(distinct), float(present) ** 2
    while high - low > 0.01 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if -middle * math.expm1(-present / middle) < distinct else (low, middle)
    return -low * math.expm1(-present * times / low)


def _is_id(leaf: pa.Array) -> bool:
    """Whether the values look like ids, which people look up one at a time."""
    if not pa.types.is_string(leaf.type) or leaf.null_count == len(leaf):
        return False
    present: int = len(leaf) - leaf.null_count
    distinct: int = pc.count_distinct(leaf, mode="only_valid").as_py()
    return distinct >= _ID_DISTINCT_SHARE * present and pc.mean(pc.binary_length(leaf)).as_py() >= _ID_BYTES


def _without_dictionary(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "DELTA_LENGTH_BYTE_ARRAY"
    return None
