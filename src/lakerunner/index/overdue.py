"""Inputs without an item and items without an end, at the ages at which they are announced again.

Each is overdue at N, 2N, 4N, 8N ... seconds of age. So a long backlog is not multiplied, and nobody needs to remember
what was announced when. Ages are measured by the database's own clock.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.index.database import Connection
from lakerunner.index.segments import SELECT_SEGMENTS, segment_of_row
from lakerunner.index.work import WorkItem
from lakerunner.model.raw_object import RawObject
from lakerunner.model.segment import Segment

NIL = uuid.UUID(int=0)

_SEEN = (
    "SELECT org_id, collector, signal, bucket, key, version, size_bytes FROM (SELECT *,"
    " extract(epoch FROM now() - seen_at)::float8 AS age_s FROM raw_object WHERE state = 'seen') AS o WHERE"
)
_UNTAKEN = (
    " CROSS JOIN LATERAL (SELECT extract(epoch FROM now() - s.created_at)::float8 AS age_s) AS a"
    " WHERE s.state = 'live' AND s.signal = ANY(%(signals)s) AND NOT EXISTS (SELECT FROM segment_input i"
    " WHERE i.stage = %(stage)s AND i.dateint = s.dateint AND i.segment_id = s.segment_id) AND"
)
_OPEN = (
    "SELECT item_id, stage, org_id, signal FROM (SELECT *, extract(epoch FROM now() - created_at)::float8 AS age_s"
    " FROM work_item WHERE state = 'open' AND stage = %(stage)s) AS i WHERE"
)
#: The age passed N, 2N, 4N ... within the last `since` seconds.
_OVERDUE = (
    " age_s >= %(after)s AND floor(log(age_s / %(after)s) / log(2.0))"
    " > floor(log(greatest(age_s - %(since)s, 1e-9) / %(after)s) / log(2.0))"
)


@dataclass(frozen=True, slots=True)
class Overdue:
    """What to look for: older than `after_s`, and not looked for in the last `since_s`; so many at a time."""

    after_s: float
    since_s: float
    page: int = 1_000


def seen_objects(tx: Connection, overdue: Overdue, after_id: uuid.UUID) -> list[RawObject]:
    """Raw objects that no item has taken, in order of id."""
    rows = tx.execute(
        _SEEN + _OVERDUE + " AND object_id > %(last)s ORDER BY object_id LIMIT %(page)s",
        _terms(overdue, after_id),
    ).fetchall()
    return [RawObject(**row) for row in rows]


def untaken_segments(
    tx: Connection, stage: str, signals: Sequence[str], overdue: Overdue, after_id: uuid.UUID
) -> list[Segment]:
    """Live segments that no item of the stage has taken, in order of id. Scans the live segments of the signals."""
    rows = tx.execute(
        SELECT_SEGMENTS + _UNTAKEN + _OVERDUE + " AND segment_id > %(last)s ORDER BY segment_id LIMIT %(page)s",
        {**_terms(overdue, after_id), "stage": stage, "signals": list(signals)},
    ).fetchall()
    return [segment_of_row(row) for row in rows]


def open_items(tx: Connection, stage: str, overdue: Overdue, after_id: uuid.UUID) -> list[WorkItem]:
    """Items of the stage that nobody ended, in order of id."""
    rows = tx.execute(
        _OPEN + _OVERDUE + " AND item_id > %(last)s ORDER BY item_id LIMIT %(page)s",
        {**_terms(overdue, after_id), "stage": stage},
    ).fetchall()
    return [WorkItem(**row) for row in rows]


def _terms(overdue: Overdue, after_id: uuid.UUID) -> dict[str, object]:
    return {"after": overdue.after_s, "since": overdue.since_s, "page": overdue.page, "last": after_id}
