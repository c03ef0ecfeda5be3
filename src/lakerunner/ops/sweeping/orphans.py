"""Objects under db/ that the index does not know: what attempts that never committed have left.

The bucket is listed page by page, and the index asked for the segments of each page, so memory does not grow with the
lake. An attempt under way has objects that the index does not know yet, so only old objects count, by their own time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from lakerunner.index import sweep_ledger
from lakerunner.index.database import Database
from lakerunner.index.ended_segments import known_ids
from lakerunner.index.sweep_ledger import Entry
from lakerunner.model.errors import BadInput, Conflict
from lakerunner.model.segment import UNDATED
from lakerunner.ops.sweeping.found import Finding, Report
from lakerunner.ops.sweeping.pace import Pace
from lakerunner.runtime.crash import crash_point
from lakerunner.store.bucket import ObjectMeta
from lakerunner.store.keys import COOKED_PREFIX, CookedKey, parse_cooked
from lakerunner.store.object_store import ObjectStore

#: Objects per question to the index.
_PAGE = 1_000
#: More orphans than this, if they are more than a share of all objects, are not deleted.
_FEW, _SHARE = 1_000, 0.5


def find_orphans(
    database: Database, store: ObjectStore, grace_s: float, report: Report
) -> Iterator[list[tuple[ObjectMeta, CookedKey]]]:  # fmt: skip
    """Pages of objects that no segment owns. What has no key of ours is reported as foreign, and never deleted."""
    newest_ns = time.time_ns() - int(grace_s * 1e9)
    listing = store.list(COOKED_PREFIX)
    while page := list(islice(listing, _PAGE)):
        ours = []
        for meta in page:
            try:
                ours.append((meta, parse_cooked(meta.key)))
            except BadInput as reason:
                report(Finding("foreign", str(reason), meta.key, bytes=meta.size_bytes, age_s=_age_s(meta)))
        unknown = _unknown(database, [(meta, key) for meta, key in ours if meta.modified_ns <= newest_ns])
        if unknown:
            yield unknown


def report_orphans(database: Database, store: ObjectStore, grace_s: float, report: Report) -> None:
    for page in find_orphans(database, store, grace_s, report):
        for meta, key in page:
            report(_finding(meta, key))


def delete_orphans(database: Database, store: ObjectStore, grace_s: float, pace: Pace, report: Report) -> None:
    _require_few(database, store, grace_s)
    for page in find_orphans(database, store, grace_s, report):
        if pace.is_over or not pace.take(len(page)):
            return
        crash_point("sweep_before_orphans")
        # Recorded first: a ledger that names an object which is still there is better than one that misses a deletion.
        with database.transaction() as tx:
            sweep_ledger.record(
                tx,
                [
                    Entry("orphan", _reason(meta), key.org_id, key.signal.name, meta.key, 0, meta.size_bytes)
                    for meta, key in page
                ],
            )
        crash_point("sweep_orphans_recorded")
        store.delete([meta.key for meta, _ in page])
        crash_point("sweep_after_orphans")
        for meta, key in page:
            report(_finding(meta, key))


def _require_few(database: Database, store: ObjectStore, grace_s: float) -> None:
    """Refuse to delete where most of the bucket is unknown: the index may be another one, or an old copy."""
    orphans = sum(len(page) for page in find_orphans(database, store, grace_s, lambda _: None))
    if orphans <= _FEW:
        return
    objects = sum(1 for _ in store.list(COOKED_PREFIX))
    if orphans > objects * _SHARE:
        raise Conflict(
            f"cannot delete orphans: the index does not know {orphans:,} of the {objects:,} objects under "
            f"{COOKED_PREFIX} in {store.config.url}",
            hint="is it the index of this bucket, and not an old copy? `lakerunner sweep --dry-run` lists them",
        )


def _unknown(database: Database, page: Sequence[tuple[ObjectMeta, CookedKey]]) -> list[tuple[ObjectMeta, CookedKey]]:
    if not page:
        return []
    refs = [(day, key.segment_id) for _, key in page for day in (key.dateint, UNDATED)]
    known = database.read(lambda tx: known_ids(tx, refs))
    return [(meta, key) for meta, key in page if key.segment_id not in known]


def _age_s(meta: ObjectMeta) -> float:
    return max(0.0, (time.time_ns() - meta.modified_ns) / 1e9)


def _reason(meta: ObjectMeta) -> str:
    return f"no segment of the index owns it, {_age_s(meta):.0f} s after it was written"


def _finding(meta: ObjectMeta, key: CookedKey) -> Finding:
    return Finding(
        "orphan", _reason(meta), meta.key, key.org_id, key.signal.name, bytes=meta.size_bytes, age_s=_age_s(meta)
    )
