"""List a prefix and record the objects missing in the ledger: older than the deployment, or with lost events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from lakerunner.intake.mapping import KeyMap
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import BadInput
from lakerunner.store.bucket import ObjectMeta

PAGE = 1_000


@dataclass
class BackfillProgress:
    """Progress of a backfill. To resume it, pass `last_key` as `start_after`, or run it again from the start."""

    listed: int = 0
    #: Files of a folder that were written a moment ago and may be incomplete. The next run finds them.
    unsettled: int = 0
    last_key: str = ""
    #: recorded, known, ignored, unmapped … -> how many.
    counts: Counter[str] = field(default_factory=Counter)


OnProgress = Callable[[BackfillProgress], None]


def backfill(
    recorder: Recorder,
    bucket: str,
    prefix: str,
    *,
    start_after: str = "",
    settle_s: float = 0.0,
    on_page: OnProgress = lambda _: None,
    source: str = "backfill",
    key_map: KeyMap | None = None,
) -> BackfillProgress:
    """Record every object under the prefix that is not in the ledger, page by page.

    `on_page` is called after each page. If it raises, the run ends; recorded objects stay recorded.
    """
    key_map = key_map or recorder.key_map()
    if bucket not in key_map.buckets:
        raise BadInput(
            f"cannot backfill from {bucket}: no profile names it, and it is not store.url",
            hint="configured buckets: " + ", ".join(sorted(key_map.buckets)),
        )
    progress = BackfillProgress(last_key=start_after)
    listing = recorder.store(key_map, bucket).list(_folder_of(prefix), start_after=start_after)
    wanted = (meta for meta in listing if meta.key.startswith(prefix))
    for page in _pages(wanted):
        settled = _settled(bucket, page, settle_s)
        progress.counts += recorder.record_listed(key_map, bucket, settled, source).counts
        progress.listed += len(page)
        progress.unsettled += len(page) - len(settled)
        progress.last_key = page[-1].key
        on_page(progress)
    return progress


def _folder_of(prefix: str) -> str:
    """Return the prefix up to its last slash: stores list only whole path parts, and the caller filters the rest."""
    return prefix[: prefix.rfind("/") + 1]


def _pages(listing: Iterator[ObjectMeta]) -> Iterator[list[ObjectMeta]]:
    while page := list(islice(listing, PAGE)):
        yield page


def _settled(bucket: str, page: list[ObjectMeta], settle_s: float) -> list[ObjectMeta]:
    # Only a folder shows incomplete objects.
    if not bucket.startswith("file:"):
        return page
    newest_ns = time.time_ns() - round(settle_s * 1e9)
    return [meta for meta in page if meta.modified_ns <= newest_ns]
