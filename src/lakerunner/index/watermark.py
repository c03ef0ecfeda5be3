"""The watermark of an org and signal: every raw object that arrived in its bucket before it can be queried.

It concerns the raw objects that the ledger knows. While some wait to be ingested, it is the arrival of the oldest of
them; when none waits, it is the arrival of the newest that is done. An object in quarantine does not hold it back. An
object that is noticed late moves it back to that object's arrival, until the object is ingested.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from lakerunner.index.database import Connection

_WAITING = (
    "(SELECT o.arrived_at FROM raw_object o WHERE o.org_id = w.org_id AND o.signal = w.signal"
    " AND o.state IN ('seen', 'bundled') ORDER BY o.arrived_at LIMIT 1)"
)
_OF_OBJECTS = "t.subject = 'raw_object' AND t.org_id = w.org_id AND t.signal = w.signal"
_NEWEST = (
    f"greatest((SELECT max(t.newest_at) FROM tally t WHERE {_OF_OBJECTS}),"  # noqa: S608
    f" (SELECT max(t.newest_at) FROM tally_delta t WHERE {_OF_OBJECTS}))"
)
#: The least watermark of an org's signals, in milliseconds; null when the ledger knows no objects of them. Parameters:
#: the org, and the signals with commas between them. Read with the segments, it promises nothing that they lack.
WATERMARK_MS = (
    f"SELECT min(floor(extract(epoch FROM coalesce({_WAITING}, {_NEWEST})) * 1000))::bigint AS watermark_ms"  # noqa: S608
    " FROM (SELECT %s::uuid AS org_id, unnest(string_to_array(%s, ',')) AS signal) AS w"
)


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far the raw objects of an org and signal have been ingested, and how many are not."""

    org_id: uuid.UUID
    signal: str
    #: None when no object has been ingested and none waits.
    watermark: datetime | None
    waiting: int
    quarantined: int


def waiting_since(tx: Connection, org_id: uuid.UUID, signals: Iterable[str]) -> datetime | None:
    """The arrival of the oldest raw object of these signals that cannot be queried yet; None when none waits."""
    row = tx.execute(
        f"SELECT min({_WAITING}) AS oldest FROM (SELECT %s::uuid AS org_id, unnest(%s::text[]) AS signal) AS w",  # noqa: S608
        [org_id, list(signals)],
    ).fetchone()
    assert row is not None
    oldest: datetime | None = row["oldest"]
    return oldest


def furthest_behind(tx: Connection, limit: int) -> list[Watermark]:
    """The watermarks of the orgs and signals that have waiting objects, the oldest first; then those of others."""
    rows = tx.execute(
        "WITH w AS (SELECT org_id, signal,"  # noqa: S608
        " coalesce(sum(count) FILTER (WHERE state IN ('seen', 'bundled')), 0)::bigint AS waiting,"
        " coalesce(sum(count) FILTER (WHERE state = 'quarantined'), 0)::bigint AS quarantined,"
        " max(newest_at) AS newest FROM (SELECT * FROM tally UNION ALL SELECT * FROM tally_delta) AS t"
        " WHERE subject = 'raw_object' GROUP BY org_id, signal)"
        " SELECT org_id, signal, coalesce(oldest, newest) AS watermark, waiting, quarantined FROM w"
        f" CROSS JOIN LATERAL (SELECT CASE WHEN waiting > 0 THEN {_WAITING} END AS oldest) AS o"
        " ORDER BY waiting = 0, watermark, org_id, signal LIMIT %s",
        [limit],
    ).fetchall()
    return [Watermark(**row) for row in rows]
