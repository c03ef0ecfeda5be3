"""Statistics of a segment for the index, gathered table by table: time range, row count, pruning values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.errors import Bug
from lakerunner.model.id_filter import IdFilterBuilder
from lakerunner.model.segment import MAX_PRUNING_VALUES, Pruning
from lakerunner.model.signal import Signal
from lakerunner.model.time import TimeRange
from lakerunner.store.nanos import SUFFIX


@dataclass(frozen=True, slots=True)
class SegmentStatistics:
    """Statistics of the rows of a segment, known before it is encoded."""

    time_range: TimeRange
    row_count: int
    pruning: Pruning
    #: See `model/id_filter.py`.
    id_filter: bytes = b""


class StatisticsBuilder:
    """Takes the rows of a segment in parts, decoded or as they are stored."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._start_ns: int | None = None
        self._end_ns = 0
        self._row_count = 0
        self._values: dict[str, set[str] | None] = {name: set() for name in signal.pruning}
        names = (*signal.pruning, *signal.rows.sort_key)
        self._bounds: dict[str, tuple[Any, Any] | None] = {
            name: None for name in names if name != signal.time_column
        }  # fmt: skip
        self._ids = IdFilterBuilder()

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        times = event_times_ns(self._signal, rows)
        start_ns = int(times.min())
        self._start_ns = start_ns if self._start_ns is None else min(self._start_ns, start_ns)
        self._end_ns = max(self._end_ns, int(times.max()) + self._signal.time_unit_ns)
        self._row_count += rows.num_rows
        if self._signal.id_column:
            self._ids.add(rows.column(self._signal.id_column))
        for name, values in self._values.items():
            if values is not None:
                values.update(value or "" for value in pc.unique(rows.column(name)).to_pylist())
                if len(values) > MAX_PRUNING_VALUES:
                    self._values[name] = None
        for name, known in list(self._bounds.items()):
            self._add_bounds(name, known, rows.column(name))

    def _add_bounds(self, name: str, known: tuple[Any, Any] | None, column: pa.ChunkedArray) -> None:
        if column.null_count:
            del self._bounds[name]
            return
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        found = pc.min_max(plain).as_py()
        low, high = found["min"], found["max"]
        self._bounds[name] = (low, high) if known is None else (min(low, known[0]), max(high, known[1]))

    def result(self) -> SegmentStatistics:
        if self._start_ns is None:
            raise Bug("cannot describe a segment without rows")
        times = TimeRange(self._start_ns, self._end_ns)
        return SegmentStatistics(times, self._row_count, self._pruning(), self._ids.result())

    def _pruning(self) -> Pruning:
        """Distinct values of the pruning columns, and bounds of the pruning and sort columns except the time.

        A null is stored as the empty string: Prometheus and Loki do not distinguish an absent label from an empty one,
        so a query for either must open the segment.
        """
        values = {name: tuple(sorted(found)) for name, found in self._values.items() if found is not None}
        return Pruning(values, {name: found for name, found in self._bounds.items() if found is not None})


def event_times_ns(signal: Signal, rows: pa.Table) -> npt.NDArray[np.int64]:
    """The event time of each row. Stored rows have microseconds and a remainder."""
    name = signal.time_column
    times: npt.NDArray[np.int64] = rows.column(name).cast(pa.int64()).to_numpy()
    if name + SUFFIX in rows.column_names:
        rest = rows.column(name + SUFFIX).to_numpy().astype(np.int64)
        return np.asarray(times * 1_000 + rest, np.int64)
    return np.asarray(times * signal.time_unit_ns, np.int64)
