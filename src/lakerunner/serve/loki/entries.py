"""Limits the entries of an answer: to a number, to one per interval, and to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.model.errors import LimitHit
from lakerunner.query.series.histograms.histogram import Ints
from lakerunner.serve.rendering.streams import TIME


@dataclass(frozen=True, slots=True)
class Thinning:
    """With an interval, an entry is kept if it is at least that far from the one kept before it."""

    interval_ns: int
    limit: int
    newest_first: bool

    @property
    def scan_limit(self) -> int | None:
        """How many entries to read; None: it is not known how many are left out."""
        return None if self.interval_ns else self.limit

    def thinned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The entries that are kept. Stops reading at the limit."""
        left, last_ns, any_kept = self.limit, 0, False
        for batch in batches:
            if self.interval_ns:
                times = batch.column(TIME).cast(pa.int64()).to_numpy()
                rows = _spaced(times, self.interval_ns, last_ns, any_kept)
                if not len(rows):
                    continue
                last_ns, any_kept = int(times[rows[-1]]), True
                batch = batch.take(pa.array(rows[:left]))
            batch = batch.slice(0, left)
            left -= batch.num_rows
            yield batch
            if not left:
                return


def within_bytes(batches: Iterable[pa.RecordBatch], most_bytes: int) -> list[pa.RecordBatch]:
    """All entries. Refuses an answer that would take more memory, as soon as it does."""
    kept, size_bytes = [], 0
    for batch in batches:
        size_bytes += batch.nbytes
        if size_bytes > most_bytes:
            raise LimitHit(
                f"cannot answer with more than {most_bytes:,} bytes of log entries (api.max_answer_bytes)",
                hint="lower the limit, shorten lines with line_format, or export with `lakerunner query logs`",
            )
        kept.append(batch)
    return kept


@njit(cache=True, nogil=True)
def _spaced(times: Ints, interval_ns: int, last_ns: int, any_kept: bool) -> Ints:
    rows = np.empty(len(times), np.int64)
    count = 0
    for row in range(len(times)):
        if not any_kept or abs(times[row] - last_ns) >= interval_ns:
            rows[count] = row
            count += 1
            last_ns, any_kept = times[row], True
    return rows[:count]
