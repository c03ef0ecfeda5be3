"""Remove the rows of a source that was read twice, and no others.

Ingest is exactly once, but an operator may lose the ledger's memory of an object and ingest it again. The index records
from which raw objects each segment was made. If two inputs share one, its rows are in both. A row that occurs n times
in one and m times in the other then stays max(n, m) times: equal lines that were sent on purpose occur as often in
either reading, so they stay. Inputs without a common source keep all their rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.model.signal import Signal
from lakerunner.model.signals.logs import REPEAT
from lakerunner.pipeline.compact.merge import Chunk
from lakerunner.pipeline.ordering import take
from lakerunner.pipeline.repeats import equal_rows
from lakerunner.store.nanos import SUFFIX

#: For each input, the earlier inputs with which it shares a source.
Readings = Sequence[Sequence[int]]


def without_duplicates(chunk: Chunk, signal: Signal, readings: Readings, *, all_once: bool) -> Chunk:
    """Drop rows that an earlier reading of their source has as well; with `all_once` every row but the first of its
    kind."""
    rows, kind = equal_rows(chunk.rows, _identity(signal, chunk.rows))
    if not len(rows):
        return chunk
    # Candidates by kind, in their order: of each kind the later ones are dropped.
    order = np.argsort(kind, kind="stable")
    rows, kind = rows[order], kind[order]
    nth = _nth(kind)
    if all_once:
        dropped = nth > 0
    else:
        origin = chunk.origin[rows].astype(np.int64)
        inputs = len(readings)
        counts = np.bincount(kind * inputs + origin, minlength=(int(kind.max()) + 1) * inputs).reshape(-1, inputs)
        seen_before = np.zeros_like(counts)
        for number, earlier in enumerate(readings):
            if earlier:
                seen_before[:, number] = counts[:, list(earlier)].max(axis=1)
        within = _nth_of_input(kind, origin, inputs)
        dropped = within < seen_before[kind, origin]
    if not dropped.any():
        return chunk
    keep = np.ones(chunk.rows.num_rows, np.bool_)
    keep[rows[dropped]] = False
    kept = np.flatnonzero(keep)
    return Chunk(take(chunk.rows, kept), chunk.origin[kept])


def _identity(signal: Signal, rows: pa.Table) -> list[str]:
    """The columns in which duplicates are equal. Log lines have no identity but all they say."""
    if not signal.dedup_key:
        return [name for name in rows.column_names if name != REPEAT]
    stored = set(rows.column_names)
    return [name for key in signal.dedup_key for name in (key, key + SUFFIX) if name in stored]


def _nth(kind: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The number of each element among its equals, which are neighbours."""
    starts = np.flatnonzero(np.diff(kind, prepend=kind[0] - 1))
    lengths = np.diff(np.append(starts, len(kind)))
    return np.arange(len(kind)) - np.repeat(starts, lengths)


def _nth_of_input(
    kind: npt.NDArray[np.int64], origin: npt.NDArray[np.int64], inputs: int
) -> npt.NDArray[np.int64]:  # fmt: skip
    """The number of each row among those of its kind and input."""
    both = kind * inputs + origin
    order = np.argsort(both, kind="stable")
    nth = np.empty(len(both), np.int64)
    nth[order] = _nth(both[order])
    return nth
