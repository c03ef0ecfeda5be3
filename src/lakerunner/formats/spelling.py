"""The rows in which an attribute's key is not spelled as usual in its column, such as `LEVEL` beside `level`.

Keys that differ only in case share a column. The schema's metadata has the keys of every column, the usual one first.
A row with another one has a JSON object of column and key in the column `spelled_keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels import loki_label

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Spelled:
    """The rows in which the column holds a value of this key."""

    rows: Ints
    column: str
    key: str


def by_use(keys: Sequence[str], rows: Sequence[int]) -> list[str]:
    """Return the keys of a column, first those with the label that most rows have."""
    if len(set(keys)) == 1:
        return [keys[0]]
    uses: dict[str, int] = {}
    for key, count in zip(keys, rows, strict=True):
        uses[loki_label(key)] = uses.get(loki_label(key), 0) + count
    return sorted(set(keys), key=lambda key: (-uses[loki_label(key)], loki_label(key), key))


def spelled_column(parts: Sequence[Spelled], row_count: int) -> pa.Array:
    """Return the column `spelled_keys`."""
    if not parts:
        return pa.nulls(row_count, pa.string())
    members = pa.array([_member(part) for part in parts], pa.string())
    rows = np.concatenate([part.rows for part in parts])
    member = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
    order = np.lexsort((member, rows))
    counts = np.bincount(rows, minlength=row_count)
    offsets = np.zeros(row_count + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    lists = pa.ListArray.from_arrays(pa.array(offsets), members.take(pa.array(member[order])))
    objects = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    return pc.if_else(pa.array(counts > 0), objects, pa.scalar(None, pa.string()))


def _member(part: Spelled) -> str:
    return f"{orjson.dumps(part.column).decode()}:{orjson.dumps(part.key).decode()}"


def _members(document: str) -> dict[str, str]:
    """Return the columns and keys of an object. A foreign file may have anything there."""
    try:
        found = orjson.loads(document)
    except orjson.JSONDecodeError:
        return {}
    return {name: key for name, key in found.items() if isinstance(key, str)} if isinstance(found, dict) else {}


def spelled_rows(column: pa.Array) -> dict[str, dict[str, Mask]]:
    """Return the rows with an unusual key, by column and key."""
    if column.null_count == len(column):
        return {}
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    holders: dict[str, dict[str, list[int]]] = {}
    for code, document in enumerate(encoded.dictionary.to_pylist()):
        for name, key in _members(document).items():
            holders.setdefault(name, {}).setdefault(key, []).append(code)
    return {name: {key: np.isin(codes, held) for key, held in by_key.items()} for name, by_key in holders.items()}
