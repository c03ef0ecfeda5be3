"""Convert the dense buckets of OTLP histograms to the sparse spans of Prometheus' native histograms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakerunner.formats.attributes import Ints
from lakerunner.model.signals.metrics import SPAN

#: Gaps of up to this many empty buckets are written out, as Prometheus does: a further span would cost more.
_FILLED_GAP = 2
_INT32 = np.iinfo(np.int32)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layout:
    """Spans and absolute counts of each histogram, as columns."""

    spans: pa.Array
    counts: pa.Array


def sparse(rows: Ints, index: Ints, counts: Floats, row_count: int) -> Layout:
    """Lay out buckets given as (row, index, count), ordered by row and index. Equal indexes are merged.

    >>> layout = sparse(np.array([0, 0, 0]), np.array([1, 2, 9]), np.array([4.0, 1.0, 2.0]), 1)
    >>> layout.spans.to_pylist()
    [[{'offset': 1, 'length': 2}, {'offset': 6, 'length': 1}]]
    """
    rows, index, counts = _merged(rows, index, counts)
    full = counts > 0
    rows, index, counts = rows[full], index[full], counts[full]
    if not len(rows):
        return Layout(_lists(np.zeros(row_count, np.int64), pa.nulls(0, SPAN)), _empty(row_count))
    first = np.ones(len(rows), np.bool_)
    first[1:] = rows[1:] != rows[:-1]
    gap = np.zeros(len(rows), np.int64)
    gap[1:] = index[1:] - index[:-1] - 1
    opens = first | (gap > _FILLED_GAP)
    width = np.where(opens, 1, gap + 1)
    filled = np.zeros(int(width.sum()))
    filled[np.cumsum(width) - 1] = counts
    starts = np.flatnonzero(opens)
    offset = np.where(first, index, gap)[starts]
    length = np.add.reduceat(width, starts)
    spans = pa.StructArray.from_arrays(
        [pa.array(offset.astype(np.int32)), pa.array(length.astype(np.uint32))], fields=list(SPAN)
    )
    return Layout(
        _lists(np.bincount(rows[starts], minlength=row_count), spans),
        _lists(np.bincount(rows, weights=width, minlength=row_count).astype(np.int64), pa.array(filled)),
    )


def out_of_range(offsets: Ints, lengths: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of histograms with a bucket index that does not fit a span."""
    return (offsets + lengths >= _INT32.max) | (offsets <= _INT32.min)


def _merged(rows: Ints, index: Ints, counts: Floats) -> tuple[Ints, Ints, Floats]:
    same = (rows[1:] == rows[:-1]) & (index[1:] == index[:-1])
    if not same.any():
        return rows, index, counts
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    return rows[starts], index[starts], np.add.reduceat(counts, starts)


def _lists(sizes: Ints, values: pa.Array) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _empty(row_count: int) -> pa.Array:
    return _lists(np.zeros(row_count, np.int64), pa.array([], pa.float64()))
