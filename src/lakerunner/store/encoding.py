"""How each column of a segment is encoded: chosen from a look at its values, readable by DuckDB and Spark alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.signal import Table

#: The look: that many runs of neighbours. Runs, because a sorted column repeats itself only from row to row.
_RUNS, _RUN_ROWS = 16, 256
#: Above this share of distinct values in the look, a dictionary would be as large as the column.
_DISTINCT_SHARE = 0.6
#: A reader fetches this much too often with one lookup in a hundred.
_BLOOM_FALSE_POSITIVES = 0.01


@dataclass(frozen=True, slots=True)
class Encodings:
    """What the Parquet writer is told, by path of leaf column."""

    dictionary: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    blooms: dict[str, dict[str, float | int]] = field(default_factory=dict)


def choose(description: Table, table: pa.Table, rows_per_group: int) -> Encodings:
    """A dictionary where values repeat; else deltas for times and whole numbers, split bytes for fractions."""
    chosen = Encodings()
    for name, column in zip(table.column_names, table.columns, strict=True):
        for path, leaf in _leaves(name, _look(column)):
            if pa.types.is_dictionary(leaf.type) or _repeats(leaf):
                chosen.dictionary.append(path)
            elif encoding := _without_dictionary(leaf.type):
                chosen.others[path] = encoding
    for spec in description.columns:
        if spec.bloom and table.column(spec.name).null_count < table.num_rows:
            ndv = max(1, min(rows_per_group, table.num_rows))
            chosen.blooms[spec.name] = {"ndv": ndv, "fpp": _BLOOM_FALSE_POSITIVES}
    return chosen


def _look(column: pa.ChunkedArray) -> pa.Array:
    """Some of the column's rows, in runs spread over it."""
    if len(column) <= _RUNS * _RUN_ROWS:
        chunks = column.chunks
    else:
        starts = np.linspace(0, len(column) - _RUN_ROWS, _RUNS).astype(int)
        chunks = [chunk for start in starts for chunk in column.slice(int(start), _RUN_ROWS).chunks]
    if pa.types.is_dictionary(column.type):
        # Its values are known to repeat; only its type is of interest.
        return pa.array([], column.type)
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The leaf columns as Parquet names them, with their values."""
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


def _repeats(leaf: pa.Array) -> bool:
    if pa.types.is_boolean(leaf.type):
        return False
    present: int = len(leaf) - leaf.null_count
    distinct: int = pc.count_distinct(leaf, mode="only_valid").as_py()
    return distinct <= _DISTINCT_SHARE * present


def _without_dictionary(kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind) or pa.types.is_integer(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_floating(kind):
        return "BYTE_STREAM_SPLIT"
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "DELTA_LENGTH_BYTE_ARRAY"
    return None
