"""Entries as the sorted times of their series, for queries that only count them.

Entries of a row group never change, so neither do these. They are kept between queries, whatever the times of the
queries: counting the entries of a window takes two searches, however many entries there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.query.logql.entries import ERROR, Entries, Ints, plain
from lakerunner.query.logql.eval.kernels import times_by_series
from lakerunner.query.logql.eval.series_ids import series_ids
from lakerunner.query.series.arrays import offsets_of

#: With fewer entries per series, looking at each entry takes no longer.
_LEAST_PER_SERIES = 4
#: So few series are cheap to keep, and to parse the lines of their row group again may take long.
_FEW_SERIES = 64


@dataclass(frozen=True, slots=True)
class SeriesTimes:
    """Series n has the times from `offsets[n]` up to `offsets[n + 1]`, ascending."""

    #: Label -> its value in each series.
    columns: Mapping[str, pa.DictionaryArray]
    offsets: Ints
    times_ns: Ints

    @classmethod
    def of(cls, entries: Entries, by: frozenset[str]) -> SeriesTimes | None:
        """The entries by these labels; None if an entry failed, or there are too many series for it to pay."""
        errors = entries.label(ERROR)
        if errors is not None and errors.null_count < len(errors):
            return None
        found = series_ids(by)
        series = found.of(entries)
        if found.count > max(len(entries) // _LEAST_PER_SERIES, _FEW_SERIES):
            return None
        first = np.empty(found.count, np.int64)
        # Of equal places the last assignment counts.
        first[series[::-1]] = np.arange(len(series) - 1, -1, -1)
        offsets = offsets_of(np.bincount(series, minlength=found.count).astype(np.int64))
        times = np.empty(len(entries), np.int64)
        times_by_series(series, entries.times_ns, offsets, times)
        index = pa.array(first)
        labels = {name: values for name in sorted(by) if (values := entries.label(name)) is not None}
        columns = {
            name: plain(values.take(index)).dictionary_encode()
            for name, values in labels.items()
            if values.null_count < len(values)
        }
        return cls(columns, offsets, times)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        texts = sum(int(each.get_total_buffer_size()) for each in self.columns.values())
        return int(self.offsets.nbytes + self.times_ns.nbytes) + texts

    def some(self, places: Ints) -> SeriesTimes:
        """Labels of the series at these places, without their times."""
        index = pa.array(places)
        columns = {name: values.take(index) for name, values in self.columns.items()}
        return SeriesTimes(columns, np.zeros(len(places) + 1, np.int64), self.times_ns[:0])

    def label(self, name: str) -> pa.Array | None:
        return self.columns.get(name)

    def names(self) -> list[str]:
        return sorted(self.columns)
