"""Blocks as Arrow record batches and back: one row per series, one cell per step."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import xxhash

from lakerunner.query.series.block import Block, Bools
from lakerunner.query.series.histograms.arrow import HISTOGRAM, histogram_column, histogram_structs
from lakerunner.query.series.histograms.column import with_rows
from lakerunner.query.series.histograms.grid import HistogramGrid
from lakerunner.query.series.label_list import LabelList, label_list, packed_labels
from lakerunner.runtime.byte_lru import ByteLru

#: Maximum number of cells of one batch.
_BATCH_CELLS = 1 << 19

SCHEMA = pa.schema(
    [
        pa.field("labels", pa.binary()),
        #: The position among all rows in the order of labels; null if the sender does not know it.
        pa.field("rank", pa.int64()),
        pa.field("values", pa.list_(pa.float64())),
        #: A bit per step: whether it has a float. Null: all steps have one.
        pa.field("valid", pa.binary()),
        #: A bit per step: whether it has a histogram. Null: no step has one.
        pa.field("held", pa.binary()),
        #: The histograms of those steps, in order.
        pa.field("histograms", pa.list_(HISTOGRAM)),
    ]
)
_HISTOGRAMS = SCHEMA.field("histograms").type


_LABELS: ByteLru[LabelList] = ByteLru(256 << 20)


def _labels_of(column: pa.BinaryArray, ranks: pa.Int64Array) -> LabelList:
    """The received labels. The same series get the same list, so that values derived from it are computed once."""
    digest = xxhash.xxh3_128(f"{column.offset} {len(column)}".encode())
    for buffer in column.buffers()[1:]:
        digest.update(memoryview(buffer) if buffer is not None else b"")
    key = digest.digest()
    known = _LABELS.get(key)
    if known is None:
        known = LabelList.of_packed(_copied(column), None if ranks.null_count else ranks.to_numpy().copy())
        _LABELS.put(key, known, known.size_bytes)
    return known


def _copied(column: pa.BinaryArray) -> pa.BinaryArray:
    """A copy of the column. A view would keep the whole message with all its values in memory."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]].copy()
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(text)]
    )


def to_batches(block: Block) -> Iterator[pa.RecordBatch]:
    rows, steps = block.shape
    at_once = max(1, _BATCH_CELLS // max(1, steps))
    for begin in range(0, rows, at_once):
        yield _batch(block, slice(begin, min(begin + at_once, rows)))


def from_batches(batches: Sequence[pa.RecordBatch], steps: int) -> Block:
    """The block of all batches. The sender has already dropped metric names where it must."""
    if not batches:
        return Block.empty(steps)
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    rows = whole.num_rows
    if not rows:
        return Block.empty(steps)
    columns = dict(zip(SCHEMA.names, whole.columns, strict=True))
    values = columns["values"].flatten().to_numpy().reshape(rows, steps)
    valid = _mask(columns["valid"], steps, absent=True)
    labels = _labels_of(columns["labels"], columns["rank"])
    block = Block(labels, values, valid, np.zeros(rows, dtype=bool))
    if columns["held"].null_count == rows:
        return block
    block.hmask = _mask(columns["held"], steps, absent=False)
    column = histogram_column(columns["histograms"].flatten())
    row = np.full(block.shape, -1, dtype=np.int64)
    row[block.hmask] = np.arange(len(column))
    block.hists = HistogramGrid(column, row)
    return block


def _batch(block: Block, rows: slice) -> pa.RecordBatch:
    values, valid = np.ascontiguousarray(block.values[rows]), block.valid[rows]
    number, steps = values.shape
    ranks = label_list(block.labels).ranks
    offsets = pa.array(np.arange(number + 1, dtype=np.int32) * steps)
    held, histograms = _nulls(number, pa.binary()), _nulls(number, _HISTOGRAMS)
    if block.hmask is not None and block.hists is not None and block.hmask[rows].any():
        mask = block.hmask[rows]
        cells = block.hists.row[rows][mask]
        held_offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)
        structs = histogram_structs(with_rows(block.hists.column, cells), 0, len(cells))
        held, histograms = _bits(mask), pa.ListArray.from_arrays(pa.array(held_offsets), structs)
    return pa.RecordBatch.from_arrays(
        [
            packed_labels(block.labels)[rows],
            _nulls(number, pa.int64()) if ranks is None else pa.array(ranks[rows]),
            pa.ListArray.from_arrays(offsets, pa.array(values.ravel(), from_pandas=False)),
            _nulls(number, pa.binary()) if valid.all() else _bits(valid),
            held,
            histograms,
        ],
        schema=SCHEMA,
    )


@functools.lru_cache(64)
def _nulls(number: int, kind: pa.DataType) -> pa.Array:
    # For a block of one series, making the columns that have no value would take half of the time.
    return pa.nulls(number, kind)


def _bits(mask: Bools) -> pa.Array:
    packed = np.packbits(mask, axis=1)
    offsets = np.arange(len(mask) + 1, dtype=np.int32) * packed.shape[1]
    return pa.BinaryArray.from_buffers(pa.binary(), len(mask), [None, pa.py_buffer(offsets), pa.py_buffer(packed)])


def _mask(bits: pa.BinaryArray, steps: int, *, absent: bool) -> Bools:
    if bits.null_count == len(bits):
        return np.full((len(bits), steps), absent, dtype=bool)
    if not bits.null_count:
        return _unpacked(bits, steps)
    out = np.full((len(bits), steps), absent, dtype=bool)
    out[bits.is_valid().to_numpy(zero_copy_only=False)] = _unpacked(bits.drop_null(), steps)
    return out


def _unpacked(bits: pa.BinaryArray, steps: int) -> Bools:
    """All rows have as many bytes."""
    _, offsets, data = bits.buffers()
    begin, end = np.frombuffer(offsets, np.int32)[[bits.offset, bits.offset + len(bits)]]
    packed = np.frombuffer(data, np.uint8)[begin:end].reshape(len(bits), -1)
    return np.unpackbits(packed, axis=1, count=steps).view(np.bool_)
