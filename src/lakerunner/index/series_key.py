"""The secret key of series ids, made once per lake by a migration."""

from __future__ import annotations

from lakerunner.index.database import Connection
from lakerunner.model.errors import Missing


def series_key(tx: Connection) -> bytes:
    """Return the key. Whoever has it can make series whose ids collide: it goes to the tasks of ingest only."""
    row = tx.execute("SELECT key FROM series_key").fetchone()
    if row is None:
        raise Missing("cannot give series their ids: the index has no series key", hint="restore the table series_key")
    return bytes(row["key"])
