"""What logs of every format get after decoding: the level in few words, and the fingerprint of the message."""

from __future__ import annotations

import pyarrow as pa

from lakerunner.formats.fingerprints import fingerprints
from lakerunner.formats.levels import levels_of
from lakerunner.model.signals.logs import FINGERPRINT, LEVEL


def with_details(table: pa.Table) -> pa.Table:
    """Return the table with its derived columns filled."""
    table = _with(table, LEVEL, levels_of(table))
    return _with(table, FINGERPRINT, fingerprints(table.column("message")))


def _with(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    at = table.column_names.index(name)
    return table.set_column(at, table.schema.field(at), values)
