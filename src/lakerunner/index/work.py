"""Work items: units of work for a stage, each with an id that is a hash of its inputs."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from lakerunner.index import tally
from lakerunner.index.database import Connection
from lakerunner.model.ids import hashed_id

#: Increase it when a stage writes something else for the same inputs; then the same inputs get new ids.
FORMAT_VERSION = 1


class ItemState(enum.StrEnum):
    """open -> done, or stale when an input was no longer live at the commit."""

    OPEN = "open"
    DONE = "done"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class WorkItem:
    item_id: uuid.UUID
    stage: str
    org_id: uuid.UUID
    signal: str
    #: Parameters of the stage besides its inputs (a target tier, a window).
    plan: Mapping[str, Any] = field(default_factory=dict)


def item_id(stage: str, inputs: Iterable[uuid.UUID]) -> uuid.UUID:
    """Return the same id for the same inputs in any order, so that work created twice is one item."""
    return hashed_id(stage.encode(), str(FORMAT_VERSION).encode(), *(input_id.bytes for input_id in sorted(inputs)))


def create_item(tx: Connection, item: WorkItem) -> bool:
    """Insert the item; return False when it exists already."""
    done = tx.execute(
        "INSERT INTO work_item (item_id, stage, org_id, signal, plan) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING",
        [item.item_id, item.stage, item.org_id, item.signal, Jsonb(dict(item.plan))],
    )
    return done.rowcount == 1


def reopen_item(tx: Connection, item: WorkItem) -> None:
    """Insert the item, or open it again when its inputs ended without rows and were released."""
    tx.execute(
        "INSERT INTO work_item (item_id, stage, org_id, signal, plan) VALUES (%s, %s, %s, %s, %s)"
        " ON CONFLICT (item_id) DO UPDATE SET state = 'open', reason = NULL, created_at = now(), ended_at = NULL",
        [item.item_id, item.stage, item.org_id, item.signal, Jsonb(dict(item.plan))],
    )


def end_item(tx: Connection, item_id: uuid.UUID, state: ItemState, reason: str | None = None) -> bool:
    """End an open item; return False when it was not open."""
    # The row lock makes a second attempt wait here until the first has committed or failed.
    done = tx.execute(
        "UPDATE work_item SET state = %s, reason = %s, ended_at = now() WHERE item_id = %s AND state = 'open'",
        [state, reason, item_id],
    )
    return done.rowcount == 1


def load_items(
    tx: Connection, wanted: Sequence[uuid.UUID]
) -> tuple[dict[uuid.UUID, WorkItem], dict[uuid.UUID, ItemState]]:
    """The open ones of these items, and the states of those that have ended. One in neither was forgotten."""
    rows = tx.execute(
        "SELECT item_id, stage, org_id, signal, plan, state FROM work_item WHERE item_id = ANY(%s)", [list(wanted)]
    ).fetchall()
    states = {row["item_id"]: ItemState(row.pop("state")) for row in rows}
    items = {row["item_id"]: WorkItem(**row) for row in rows if states[row["item_id"]] is ItemState.OPEN}
    return items, {item_id: state for item_id, state in states.items() if state is not ItemState.OPEN}


def count_open(tx: Connection, stage: str, limit: int) -> int:
    """How many items of the stage are open; counts no further than the limit."""
    row = tx.execute(
        # The order keeps PostgreSQL to the index of open items; a scan might meet all that have ended first.
        "SELECT count(*) AS items FROM (SELECT FROM work_item WHERE stage = %s AND state = 'open'"
        " ORDER BY created_at LIMIT %s) AS waiting",
        [stage, limit],
    ).fetchone()
    assert row is not None
    return int(row["items"])


def count_by_state(tx: Connection) -> dict[str, int]:
    counts = tally.count_by_state(tx, "work_item")
    return {state.value: counts.get(state.value, 0) for state in ItemState}


def forget_ended(tx: Connection, keep_s: float, limit: int) -> int:
    """Delete up to `limit` items that ended more than `keep_s` ago, and their hold on segments that are not live.

    A redelivered message of a deleted item finds nothing and is dropped, because its inputs no longer wait. `keep_s`
    must exceed the longest attempt, whose commit would fail. An item with a raw object that never ended is kept: it is
    the only trace of what happened to that object. The hold on a live segment is kept as well, because it is what keeps
    a stage from taking the segment again.
    """
    rows = tx.execute(
        "DELETE FROM work_item WHERE item_id = ANY(ARRAY(SELECT item_id FROM work_item w WHERE state <> 'open'"
        " AND ended_at < now() - make_interval(secs => %s) AND NOT EXISTS (SELECT FROM raw_object o"
        " WHERE o.item_id = w.item_id AND o.state = 'bundled') ORDER BY ended_at LIMIT %s FOR UPDATE SKIP LOCKED))"
        " RETURNING item_id",
        [keep_s, limit],
    ).fetchall()
    tx.execute(
        "DELETE FROM segment_input i WHERE item_id = ANY(%s) AND NOT EXISTS (SELECT FROM segment s"
        " WHERE s.dateint = i.dateint AND s.segment_id = i.segment_id AND s.state = 'live')",
        [[row["item_id"] for row in rows]],
    )
    return len(rows)
