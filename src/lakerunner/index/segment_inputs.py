"""Segments as inputs of work items: lock those that a stage has not taken, bind them to an item, load them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from lakerunner.index.database import Connection
from lakerunner.index.lookup import load_segments
from lakerunner.index.segments import SegmentRef, ref
from lakerunner.model.segment import Segment


def lock_untaken(tx: Connection, stage: str, refs: Sequence[SegmentRef]) -> set[SegmentRef]:
    """Lock those of the segments that are live and that no item of the stage has taken, until the transaction ends."""
    asked = [[each.dateint for each in refs], [each.segment_id for each in refs]]
    # Locked in order, so that two boxers with the same segments wait for each other and do not deadlock.
    tx.execute(
        "SELECT FROM segment s JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id) USING (dateint, segment_id)"
        " WHERE s.state = 'live' ORDER BY dateint, segment_id FOR UPDATE OF s",
        asked,
    )
    # A statement of its own: it sees what a boxer that held the locks before this one has bound.
    rows = tx.execute(
        "SELECT dateint, segment_id FROM segment s"
        " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id) USING (dateint, segment_id)"
        " WHERE s.state = 'live' AND NOT EXISTS (SELECT FROM segment_input i WHERE i.stage = %s"
        " AND i.dateint = s.dateint AND i.segment_id = s.segment_id)",
        [*asked, stage],
    ).fetchall()
    return {SegmentRef(**row) for row in rows}


def bind_segments(tx: Connection, stage: str, refs: Sequence[SegmentRef], item_id: uuid.UUID) -> None:
    """Give segments to an item. They must be locked and untaken."""
    tx.execute(
        "INSERT INTO segment_input (stage, dateint, segment_id, item_id)"
        " SELECT %s, dateint, segment_id, %s FROM unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)",
        [stage, item_id, [each.dateint for each in refs], [each.segment_id for each in refs]],
    )


def release_segments(tx: Connection, item_id: uuid.UUID) -> None:
    """Set the segments of an item free: another item of the stage may take those that are still live."""
    tx.execute("DELETE FROM segment_input WHERE item_id = %s", [item_id])


def release_some(tx: Connection, item_id: uuid.UUID, refs: Sequence[SegmentRef]) -> None:
    """Set some segments of an item free."""
    if refs:
        tx.execute(
            "DELETE FROM segment_input i USING unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
            " WHERE i.item_id = %s AND i.dateint = r.dateint AND i.segment_id = r.segment_id",
            [[each.dateint for each in refs], [each.segment_id for each in refs], item_id],
        )


def segments_of_items(tx: Connection, item_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, list[tuple[Segment, float]]]:
    """The segments of each item, whatever their state, each with the seconds since it was made; in order of time."""
    rows = tx.execute(
        "SELECT i.item_id, dateint, segment_id, extract(epoch FROM now() - s.created_at)::float8 AS waited_s"
        " FROM segment_input i JOIN segment s USING (dateint, segment_id) WHERE i.item_id = ANY(%s)"
        " ORDER BY i.item_id, s.start_ns, segment_id",
        [list(item_ids)],
    ).fetchall()
    refs = [SegmentRef(row["dateint"], row["segment_id"]) for row in rows]
    segments = {ref(segment): segment for segment in load_segments(tx, refs)}
    found: dict[uuid.UUID, list[tuple[Segment, float]]] = {}
    for row, name in zip(rows, refs, strict=True):
        found.setdefault(row["item_id"], []).append((segments[name], row["waited_s"]))
    return found
