"""Live segments whose objects are missing in the bucket: found by merging the listing of a folder with the index.

Both sides come in the order of keys, a page at a time, so memory does not grow with the lake. A segment that looks
dangling is asked for by HEAD, and by its state in the index, before it is marked as lost; that is an alarm, because
somebody else has deleted it. When its objects are back, it is live again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from lakerunner.index import listing
from lakerunner.index.database import Database
from lakerunner.index.ended_segments import mark_lost
from lakerunner.index.listing import SegmentFolder
from lakerunner.index.segments import ref
from lakerunner.model.errors import Conflict, Missing
from lakerunner.model.segment import Segment
from lakerunner.ops.sweeping.found import Finding, Report
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.telemetry import log
from lakerunner.store import keys
from lakerunner.store.object_store import ObjectStore

#: Lost segments that one round looks for again.
_LOST = 1_000
#: More missing segments than this are not lost one by one: it is the wrong bucket, or a disk that is not mounted.
_MOST = 1_000


def find_dangling(database: Database, store: ObjectStore) -> Iterator[tuple[Segment, list[str]]]:
    """Live segments, each with those of its keys that the bucket does not have."""
    for month in database.read(listing.months):
        for folder in database.read(partial(listing.folders, month=month)):
            for segment, missing in _unlisted(database, store, folder):
                gone = [key for key in missing if not _exists(store, key)]
                still_live: bool = database.read(partial(listing.is_live, name=ref(segment)))
                if gone and still_live:
                    yield segment, gone


def report_dangling(database: Database, store: ObjectStore, report: Report) -> None:
    for segment, missing in find_dangling(database, store):
        report(_finding(segment, missing))


def mark_dangling(database: Database, store: ObjectStore, report: Report) -> None:
    """Mark such segments as lost, and make those live again whose objects are back."""
    lost = database.read(lambda tx: listing.lost_segments(tx, _LOST))
    back = [segment for segment in lost if all(_exists(store, key) for key in keys.segment_keys(segment))]
    if back:
        with database.transaction() as tx:
            listing.mark_found(tx, back)
    for segment in back:
        report(Finding("found", "its objects are back", str(segment.segment_id), segment.org_id, segment.signal))
    found = list(islice(find_dangling(database, store), _MOST + 1))
    if len(found) > _MOST or (found and next(store.list(keys.COOKED_PREFIX, limit=1), None) is None):
        raise Conflict(
            f"cannot mark segments as lost: {store.config.url} lacks the objects of {len(found):,} or more of them",
            hint="is it the bucket of this index, and is its disk mounted?",
        )
    for segment, missing in found:
        crash_point("sweep_before_lost")
        with database.transaction() as tx:
            is_marked = mark_lost(tx, segment, missing)
        crash_point("sweep_after_lost")
        if is_marked:
            report(_finding(segment, missing))
            log().error(
                "segment lost", org=str(segment.org_id), signal=segment.signal, segment=str(segment.segment_id),
                rows=segment.row_count, missing=missing,
            )  # fmt: skip


def _unlisted(
    database: Database, store: ObjectStore, folder: SegmentFolder
) -> Iterator[tuple[Segment, list[str]]]:  # fmt: skip
    """Segments of the index with those of their keys that the listing lacks: a merge of two sorted streams."""
    prefix = f"{keys.day_prefix(folder.org_id, folder.collector, folder.dateint)}{folder.signal}/"
    listed = (meta.key for meta in store.list(prefix))
    key = next(listed, None)
    for segment in listing.segments_of(database, folder):
        missing = []
        # The keys of one segment differ after its id only, so sorted they stand where the listing has them.
        for wanted in sorted(keys.segment_keys(segment)):
            while key is not None and key < wanted:
                key = next(listed, None)
            if key != wanted:
                missing.append(wanted)
        if missing:
            yield segment, missing


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except Missing:
        return False
    return True


def _finding(segment: Segment, missing: list[str]) -> Finding:
    return Finding(
        "lost",
        f"missing in the bucket: {', '.join(missing)}",
        str(segment.segment_id),
        segment.org_id,
        segment.signal,
        segment.row_count,
        segment.size_bytes,
    )
