"""Bit rot that decoding alone does not notice."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq


def rotten(body: bytes, column: str) -> bytes:
    """Flip one bit in a page of the column, so that the file still decodes, but to other values."""
    whole = pq.read_table(pa.BufferReader(body), columns=[column])
    metadata = pq.read_metadata(pa.BufferReader(body))
    leaf = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path.split(".")[0] == column)
    chunk = metadata.row_group(0).column(leaf)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    # From the end: page headers are at the beginning, and damage to them is always noticed.
    for place in reversed(range(start, start + chunk.total_compressed_size)):
        flipped = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        try:
            read = pq.read_table(pa.BufferReader(flipped), columns=[column])
        except (pa.ArrowException, OSError, ValueError):
            continue
        if read.num_rows == whole.num_rows and not read.equals(whole):
            return flipped
    raise AssertionError("every flipped bit is noticed without checksums")
