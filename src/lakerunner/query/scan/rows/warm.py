"""Kernels of the row scan in memory before the first client waits for them."""

from __future__ import annotations

import numpy as np

from lakerunner.query.scan.rows import page_index, thrift

#: An empty struct, read-only as the bytes of footers are.
_EMPTY = np.frombuffer(b"\0\0", np.uint8)

KERNELS = (
    thrift.varint,
    thrift.signed,
    thrift.list_head,
    thrift.field_head,
    thrift.skip,
    page_index.index_places,
    page_index.page_locations,
)


def warm() -> None:
    """Compile or load every kernel with the types that scans use. Seconds in a fresh installation, then little."""
    thrift.varint(_EMPTY, 0)
    thrift.signed(_EMPTY, 0)
    thrift.list_head(_EMPTY, 0)
    thrift.field_head(_EMPTY, 0, 0)
    thrift.skip(_EMPTY, 0, thrift.STRUCT)
    page_index.index_places(_EMPTY, 1, 1)
    page_index.page_locations(_EMPTY)
