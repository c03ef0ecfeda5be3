"""Deletions on request, for the routes of every dialect: what may be asked for, and what is shown of it."""

from __future__ import annotations

import uuid
from typing import Any

from lakerunner.index import deletions as index
from lakerunner.index.deletions import Deletion
from lakerunner.model.errors import BadInput
from lakerunner.pipeline.delete.request import request_deletion
from lakerunner.pipeline.delete.still_counted import derived_windows, still_counted
from lakerunner.query.deletable import deletion_request
from lakerunner.serve.api import Api
from lakerunner.serve.caller import Caller


class Deletions:
    """The deletions of a caller's org. Everything here blocks: call it in a thread."""

    def __init__(self, api: Api) -> None:
        self._database = api.service.lake.database
        self._wait_s = api.delete_wait_s

    def request(
        self, caller: Caller, signal: str, selector: str, start_ns: int, end_ns: int, *, now: bool = False
    ) -> Deletion:  # fmt: skip
        """Store a deletion. Its rows are hidden when this returns."""
        wanted, may_hold = deletion_request(
            self._database, caller.org_id, signal, selector, start_ns, end_ns, f"key {caller.name}"
        )
        with self._database.transaction() as tx:
            deletion_id = request_deletion(tx, wanted, 0.0 if now else self._wait_s, may_hold)
            return index.find_deletion(tx, caller.org_id, deletion_id)

    def all_of(self, caller: Caller, signal: str | None = None) -> list[Deletion]:
        with self._database.transaction() as tx:
            return index.list_deletions(tx, caller.org_id, signal)

    def one(self, caller: Caller, text: str) -> dict[str, Any]:
        """A deletion with its receipt."""
        with self._database.transaction() as tx:
            found = index.find_deletion(tx, caller.org_id, deletion_id(text))
            segments = index.receipt(tx, found.deletion_id)
            derived, windows = still_counted(tx, found), derived_windows(tx, found)
        receipt = [{**row, "segment_id": str(row["segment_id"])} for row in segments]
        return {**shown(found), "receipt": receipt, "stillCountedBy": derived, "derivedWindows": windows}

    def cancel(self, caller: Caller, text: str) -> Deletion:
        with self._database.transaction() as tx:
            return index.cancel_deletion(tx, caller.org_id, deletion_id(text))


def deletion_id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise BadInput(f"cannot read {text[:50]!r} as the id of a deletion") from None


def shown(deletion: Deletion) -> dict[str, Any]:
    """A deletion as a document. Times of rows are in nanoseconds, as texts: JSON's numbers may not hold them."""
    return {
        "id": str(deletion.deletion_id),
        "signal": deletion.signal,
        "selector": deletion.selector,
        "startNs": str(deletion.start_ns),
        "endNs": str(deletion.end_ns),
        "state": deletion.state.value,
        "createdBy": deletion.created_by,
        "createdAt": deletion.created_at,
        "beginsAt": deletion.begins_at,
        "endedAt": deletion.ended_at,
        "segments": deletion.segments,
        "segmentsDone": deletion.segments_done,
        "rowsBefore": deletion.rows_before,
        "rowsDeleted": deletion.rows_deleted,
    }
