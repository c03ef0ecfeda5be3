"""The raw objects that segments were made of: how compaction recognises an object that was ingested twice."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from lakerunner.index.database import Connection
from lakerunner.index.segments import SegmentRef, ref
from lakerunner.model.segment import Segment

#: Objects kept per segment: 64 KB. The sources of a segment made of more are not known any more.
MAX_SOURCES = 4_096


def record_sources(
    tx: Connection, segments: Sequence[Segment], sources: Mapping[uuid.UUID, Sequence[uuid.UUID]]
) -> None:
    """Remember the sources of new segments, as far as they are known."""
    known = [
        (ref(segment), sorted(set(found)))
        for segment in segments
        if (found := sources.get(segment.segment_id)) and len(set(found)) <= MAX_SOURCES
    ]
    if known:
        tx.execute(
            "INSERT INTO segment_source (dateint, segment_id, object_ids) SELECT dateint, segment_id, ids::uuid[]"
            " FROM unnest(%s::int[], %s::uuid[], %s::text[]) AS s(dateint, segment_id, ids)",
            [
                [each.dateint for each, _ in known],
                [each.segment_id for each, _ in known],
                ["{" + ",".join(map(str, ids)) + "}" for _, ids in known],
            ],
        )


def sources_of(tx: Connection, refs: Sequence[SegmentRef]) -> dict[SegmentRef, frozenset[uuid.UUID]]:
    """The sources of those segments whose sources are known."""
    rows = tx.execute(
        "SELECT dateint, segment_id, object_ids FROM segment_source"
        " JOIN unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id) USING (dateint, segment_id)",
        [[each.dateint for each in refs], [each.segment_id for each in refs]],
    ).fetchall()
    return {SegmentRef(row["dateint"], row["segment_id"]): frozenset(row["object_ids"]) for row in rows}


def forget_sources(tx: Connection, refs: Sequence[SegmentRef]) -> None:
    """Forget the sources of segments that are no longer live."""
    if refs:
        tx.execute(
            "DELETE FROM segment_source USING unnest(%s::int[], %s::uuid[]) AS r(dateint, segment_id)"
            " WHERE segment_source.dateint = r.dateint AND segment_source.segment_id = r.segment_id",
            [[each.dateint for each in refs], [each.segment_id for each in refs]],
        )
