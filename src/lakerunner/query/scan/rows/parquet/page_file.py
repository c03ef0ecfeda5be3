"""Makes a Parquet file in memory from chosen pages, so that pyarrow decodes only those.

pyarrow decodes only whole column chunks. A file of the wanted pages, their dictionaries and a footer of our own looks
like a small row group to pyarrow. The pages are copied from the segment unchanged; only the footer is new.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.query.scan.rows.parquet.thrift import I32, LIST, Writer, field_head, skip

_MAGIC = b"PAR1"
_TYPES = {"BOOLEAN": 0, "INT32": 1, "INT64": 2, "INT96": 3, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6}
_CODECS = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6, "LZ4": 7}
_ENCODINGS = {
    "PLAIN": 0,
    "PLAIN_DICTIONARY": 2,
    "RLE": 3,
    "BIT_PACKED": 4,
    "DELTA_BINARY_PACKED": 5,
    "DELTA_LENGTH_BYTE_ARRAY": 6,
    "DELTA_BYTE_ARRAY": 7,
    "RLE_DICTIONARY": 8,
    "BYTE_STREAM_SPLIT": 9,
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the footer says about a leaf column in a row group."""

    physical_type: str
    compression: str
    encodings: tuple[str, ...]
    path_in_schema: str
    num_values: int
    total_compressed_size: int
    total_uncompressed_size: int
    data_page_offset: int
    #: Of the dictionary page, if it has one.
    dictionary_page_offset: int | None
    #: Of the bloom filter, if it has one.
    bloom_filter_offset: int | None
    bloom_filter_length: int | None

    @classmethod
    def of(cls, chunk: pq.ColumnChunkMetaData) -> Chunk:
        return cls(
            chunk.physical_type,
            chunk.compression,
            tuple(chunk.encodings),
            chunk.path_in_schema,
            chunk.num_values,
            chunk.total_compressed_size,
            chunk.total_uncompressed_size,
            chunk.data_page_offset,
            chunk.dictionary_page_offset if chunk.has_dictionary_page else None,
            chunk.bloom_filter_offset,
            chunk.bloom_filter_length,
        )

    @property
    def has_dictionary_page(self) -> bool:
        return self.dictionary_page_offset is not None

    @property
    def begin(self) -> int:
        """Where the first of its pages begins."""
        return min(self.dictionary_page_offset or self.data_page_offset, self.data_page_offset)


@dataclass(frozen=True, slots=True)
class LeafBytes:
    """The bytes of one leaf column: its dictionary page, which may be empty, and data pages."""

    chunk: Chunk
    dictionary: bytes
    pages: Sequence[bytes]
    #: Whether the leaf is a column of its own, and whether its values may be null.
    is_flat: bool = False
    is_optional: bool = True


@dataclass(frozen=True, slots=True)
class _Template:
    schema: bytes
    metadata: bytes


def decode(fields: Sequence[pa.Field], leaves: Sequence[LeafBytes], rows: int) -> list[pa.Array]:
    """Decode the columns of the fields from the pages of all their leaves, which must hold `rows` rows."""
    template = _template(tuple(field.remove_metadata() for field in fields))
    body: list[bytes] = [_MAGIC]
    at = len(_MAGIC)
    chunks = []
    for leaf in leaves:
        size = len(leaf.dictionary) + sum(map(len, leaf.pages))
        chunks.append(_chunk(leaf, at, size, rows))
        body += [leaf.dictionary, *leaf.pages]
        at += size
    group = Writer().structs(1, chunks).number(2, at).number(3, rows).end()
    footer = Writer().number(1, 2, I32).raw(2, LIST, template.schema).number(3, rows)
    ended = footer.structs(4, [group]).raw(5, LIST, template.metadata).end()
    body += [ended, len(ended).to_bytes(4, "little"), _MAGIC]
    whole = pa.BufferReader(b"".join(body))
    file = pq.ParquetFile(whole, pre_buffer=False, page_checksum_verification=True)
    table = file.read(use_threads=False)
    if table.num_rows != rows:
        raise ValueError(f"pages hold {table.num_rows} rows instead of {rows}")
    return [_joined(column) for column in table.columns]


def _joined(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    # The chunks may have different dictionaries, which must be unified first.
    whole = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column
    return whole.combine_chunks()


def _chunk(leaf: LeafBytes, at: int, size: int, rows: int) -> bytes:
    chunk = leaf.chunk
    values = max(chunk.num_values, rows)  # An upper bound: for nested columns only the whole chunk's count is known.
    meta = Writer().number(1, _TYPES[chunk.physical_type], I32)
    meta.numbers(2, [_ENCODINGS[name] for name in chunk.encodings]).texts(3, chunk.path_in_schema.split("."))
    meta.number(4, _CODECS[chunk.compression], I32).number(5, values if "." in chunk.path_in_schema else rows)
    meta.number(6, chunk.total_uncompressed_size).number(7, size).number(9, at + len(leaf.dictionary))
    if leaf.dictionary:
        meta.number(11, at)
    return Writer().number(2, at).raw(3, 12, meta.end()).end()


@functools.lru_cache(maxsize=4096)
def _template(fields: tuple[pa.Field, ...]) -> _Template:
    """The footer's schema and key-value metadata that pyarrow writes for a file of these columns."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.schema(fields).empty_table(), sink)
    body = sink.getvalue().to_pybytes()
    footer = body[-8 - int.from_bytes(body[-8:-4], "little") : -8]
    buffer = np.frombuffer(footer, np.uint8)
    found: dict[int, bytes] = {}
    at, last = 0, 0
    while True:
        last, kind, at = field_head(buffer, at, last)
        if kind == 0:
            return _Template(found[2], found[5])
        begin, at = at, skip(buffer, at, kind)
        found[last] = footer[begin:at]
