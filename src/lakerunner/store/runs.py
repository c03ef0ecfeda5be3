"""Where the rows of each value of a sorted column lie, kept in the metadata of the file.

Rows of logs are sorted by service, and most queries select one: readers find its rows without reading the column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

RUNS_METADATA = b"lakerunner.runs"
_VERSION = 1
#: Row groups with more runs, or with longer values, have none: the footer is read as a whole.
_MOST_RUNS, _MOST_BYTES = 256, 16 << 10


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows of one row group that lie beside each other and have the same value. No row is without a value."""

    column: str
    values: tuple[str, ...]
    #: The first row of each run; the last one is the end of the row group.
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)


class RunSpool:
    """Collects the runs of a column, row group by row group."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._groups: list[dict[str, Any] | None] = []

    def add_group(self, rows: pa.Table) -> None:
        if self._column is not None and rows.num_rows:
            self._groups.append(_runs_in(rows.column(self._column)))

    def metadata(self) -> dict[bytes, bytes]:
        """The key-value metadata of the file; empty if no row group has runs."""
        if not any(self._groups):
            return {}
        document = {"version": _VERSION, "column": self._column, "groups": self._groups}
        return {RUNS_METADATA: orjson.dumps(document)}


def runs_of(metadata: Mapping[bytes, bytes] | None, rows: Sequence[int]) -> list[Runs | None]:
    """The runs of each row group, which have so many rows. None where there are none, or where they do not fit."""
    document = (metadata or {}).get(RUNS_METADATA)
    found = orjson.loads(document) if document else {}
    groups = found.get("groups", ())
    if found.get("version") != _VERSION or len(groups) != len(rows):
        return [None] * len(rows)
    return [
        None if group is None else _checked(found["column"], group, count)
        for group, count in zip(groups, rows, strict=True)
    ]


def _runs_in(values: pa.ChunkedArray) -> dict[str, Any] | None:
    if values.null_count:
        return None
    if pa.types.is_dictionary(values.type):
        values = values.cast(pa.string())
    runs = pc.run_end_encode(pa.concat_arrays(values.chunks))
    if len(runs.values) > _MOST_RUNS or pc.sum(pc.binary_length(runs.values)).as_py() > _MOST_BYTES:
        return None
    return {"values": runs.values.to_pylist(), "ends": runs.run_ends.to_pylist()}


def _checked(column: str, group: Mapping[str, Any], rows: int) -> Runs | None:
    starts = [0, *group["ends"]]
    if len(group["values"]) != len(group["ends"]) or starts[-1] != rows or any(a >= b for a, b in pairwise(starts)):
        return None
    return Runs(column, tuple(group["values"]), np.array(starts, np.int64))
