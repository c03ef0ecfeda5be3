"""Halves of calls, as tables: a client's or server's span whose other side has not come yet."""

from __future__ import annotations

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
