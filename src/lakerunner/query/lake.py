"""The lake, opened for queries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakerunner.index.database import Database
from lakerunner.index.lookup import Want
from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.query.fanout.answer import Workers
from lakerunner.query.fanout.held_filters import HeldFilters
from lakerunner.query.fanout.held_rows import HeldRows
from lakerunner.query.fanout.open import local_workers, open_workers
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.limits import QueryLimits, Size
from lakerunner.query.plan.catalog import Catalog
from lakerunner.query.plan.id_filters import IdFilters
from lakerunner.query.plan.planner import Planner
from lakerunner.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Located:
    """Segments that may hold an id, of how many they were chosen, and the watermark of that lookup."""

    segments: list[Segment]
    considered: int
    watermark_ms: int | None


class Lake:
    """One per process; each query gets its own `LakeQuery`. Safe to share between threads."""

    def __init__(
        self,
        database: Database,
        catalog: Catalog,
        workers: Workers,
        filters: HeldFilters | None = None,
        held: HeldRows | None = None,
    ) -> None:
        """With `filters`, no worker is asked about segments that cannot match. They are closed with the lake.

        With `held`, no worker is asked again for the rows of a small answer over the same segments.
        """
        self.database = database
        self._catalog = catalog
        self._workers = workers
        self._id_filters = IdFilters(database)
        self._filters = filters
        self._held = held

    def query(
        self,
        org_id: uuid.UUID,
        limits: QueryLimits | None = None,
        cancelled: Callable[[], None] = lambda: None,
        *,
        size: Size = Size.LARGE,
        only: Sequence[Segment] | None = None,
    ) -> LakeQuery:
        """What one query of the org reads from. `cancelled` raises when nobody waits for the answer any more.

        With `only`, it reads these segments and no others.
        """
        planner = Planner(self._catalog, org_id, cancelled, only)
        return LakeQuery(
            org_id, planner, self._workers, limits, cancelled, size=size, filters=self._filters, held=self._held
        )

    def segments(self, org_id: uuid.UUID, signal: str, time_range: TimeRange) -> list[Segment]:
        """The org's live segments that overlap the range now."""
        looked = self._catalog.lookup(org_id, [Want(signal, time_range)])
        return [segment for segment in looked.segments if segment.org_id == org_id]

    def holding(self, org_id: uuid.UUID, signal: str, time_range: TimeRange, wanted: str) -> Located:
        """The org's live segments that overlap the range and may hold the id, and the watermark of the signal."""
        looked = self._catalog.lookup(org_id, [Want(signal, time_range)])
        segments = [segment for segment in looked.segments if segment.org_id == org_id]
        try:
            kept = self._id_filters.holding(segments, wanted)
        except Unavailable:
            # Without their filters, all of them may hold it.
            kept = segments
        return Located(kept, len(segments), looked.watermark_ms)

    def ping(self) -> None:
        """Raise when the index does not answer."""
        self.database.ping()

    def close(self) -> None:
        if self._filters is not None:
            self._filters.close()
        self._workers.close()


def open_lake(settings: Settings, database: Database, own_scans: str = "") -> Lake:
    """The lake that the settings name, with its workers. The caller closes the database.

    Where no workers are configured, `own_scans` names a process that scans by itself, with a cache folder of that
    name, and leaves this machine's worker to others.
    """
    alone = own_scans and not settings.query.workers.strip()
    workers = local_workers(settings, own_scans) if alone else open_workers(settings)
    filter_bytes, row_bytes = settings.query.filter_cache_bytes, settings.query.row_cache_bytes
    filters = HeldFilters(filter_bytes, workers.filters) if filter_bytes and not alone else None
    held = HeldRows(row_bytes) if row_bytes and not alone else None
    return Lake(database, _catalog(settings, database), workers, filters, held)


def _catalog(settings: Settings, database: Database) -> Catalog:
    return Catalog(database, patience_s=settings.query.index_patience_s, grace_s=settings.sweep.grace_s)
