"""Halves of calls, as tables: a client's or server's span whose other side has not come yet."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

HALF = pa.schema(
    [
        #: Trace id and the client's span id.
        pa.field("pair", pa.string()),
        #: The server's own span id; empty for a client.
        pa.field("own", pa.string()),
        pa.field("is_client", pa.bool_()),
        pa.field("service", pa.string()),
        pa.field("start_ns", pa.int64()),
        pa.field("duration_ns", pa.int64()),
        pa.field("failed", pa.bool_()),
        pa.field("messaging", pa.bool_()),
        #: What a client calls the service it called; empty for others.
        pa.field("peer", pa.string()),
    ]
)


def packed(halves: pa.Table) -> bytes:
    """The table as a task returns it; empty without rows."""
    if not halves.num_rows:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, halves.schema) as writer:
        writer.write_table(halves)
    return bytes(sink.getvalue())


def unpacked(results: Iterable[bytes]) -> pa.Table:
    """The halves of all tasks."""
    tables = [HALF.empty_table()]
    for stream in results:
        if stream:
            with pa.ipc.open_stream(stream) as reader:
                tables.append(reader.read_all())
    return pa.concat_tables(tables)
