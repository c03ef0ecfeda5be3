"""The type of every attribute column, by org and signal. A type never changes once it is recorded."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from lakerunner.index.database import Connection

#: Columns per org and signal. Readers merge the columns of all files, and senders may make keys without end.
MAX_COLUMNS = 4_096


def recorded_types(tx: Connection, org_id: uuid.UUID, signal: str) -> dict[str, str]:
    """Return the types of all columns, by name."""
    rows = tx.execute(
        "SELECT name, type FROM attribute_type WHERE org_id = %s AND signal = %s", [org_id, signal]
    ).fetchall()
    return {row["name"]: row["type"] for row in rows}


def record_types(
    tx: Connection, org_id: uuid.UUID, signal: str, proposed: Mapping[str, str], limit: int = MAX_COLUMNS
) -> dict[str, str]:
    """Record the types of new columns, and return the recorded type of each; without those beyond the limit.

    Another process may have recorded a column first, with another type.
    """
    # In order of name, so that two processes with the same columns wait for each other and do not deadlock.
    names = sorted(proposed)
    tx.execute(
        "INSERT INTO attribute_type (org_id, signal, name, type) SELECT %(org)s, %(signal)s, new.name, new.type"
        " FROM unnest(%(names)s::text[], %(types)s::text[]) AS new(name, type) ORDER BY new.name"
        " LIMIT greatest(0, %(limit)s - (SELECT count(*) FROM attribute_type WHERE org_id = %(org)s"
        " AND signal = %(signal)s)) ON CONFLICT DO NOTHING",
        {
            "org": org_id,
            "signal": signal,
            "names": names,
            "types": [proposed[name] for name in names],
            "limit": limit,
        },
    )
    rows = tx.execute(
        "SELECT name, type FROM attribute_type WHERE org_id = %s AND signal = %s AND name = ANY(%s)",
        [org_id, signal, names],
    ).fetchall()
    return {row["name"]: row["type"] for row in rows}
