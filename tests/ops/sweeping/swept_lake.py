"""A lake whose segments are small objects, for tests of the sweeper: nothing of it is ever read."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from pathlib import Path

from lakerunner.index import work
from lakerunner.index.commit import ItemResult, Outcome, commit_item
from lakerunner.index.database import Database
from lakerunner.index.segments import ref
from lakerunner.index.work import WorkItem
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment, is_dated
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_S, TimeRange
from lakerunner.ops.sweeping.found import Finding, Swept
from lakerunner.ops.sweeping.round import dry_run, sweep_round
from lakerunner.runtime.settings import DataSettings, IndexSettings, RetentionSettings, Settings, SweepSettings
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

ORG = uuid.UUID(int=7)


def hours_ago(hours: float) -> int:
    """The start of an hour in the past, in nanoseconds."""
    return (time.time_ns() - int(hours * NS_PER_HOUR)) // NS_PER_HOUR * NS_PER_HOUR


class SweptLake:
    def __init__(self, database: Database, url: str, folder: Path, store: ObjectStore | None = None) -> None:
        self.database = database
        self.settings = Settings(
            data=DataSettings(dir=folder), index=IndexSettings(url=url), sweep=SweepSettings(grace_s=60.0)
        )
        self.store = store or open_store(StoreConfig.of(self.settings))

    def set(self, retention: RetentionSettings | None = None, **sweep: float) -> None:
        updates: dict[str, object] = {"sweep": self.settings.sweep.model_copy(update=sweep)}
        if retention is not None:
            updates["retention"] = retention
        self.settings = self.settings.model_copy(update=updates)

    def segment(
        self,
        signal: str = "logs",
        hours: float = 1.0,
        org_id: uuid.UUID = ORG,
        collector: str = "edge",
        tier_s: int = 0,
    ) -> Segment:
        """A segment whose objects are written, unknown to the index."""
        start_ns = hours_ago(hours)
        times = TimeRange(start_ns, start_ns + 60 * NS_PER_S)
        made = Segment(fresh_id(), org_id, collector, signal, times, 10, 100, tier_s)
        made = replace(made, is_dated=is_dated(times, time.time_ns()))
        for key in keys.segment_keys(made):
            self.store.put(key, key.encode())
        return made

    def commit(self, *made: Segment, supersedes: tuple[Segment, ...] = (), stage: str = "compact") -> uuid.UUID:
        item_id = work.item_id(stage, [fresh_id()])
        first = (*made, *supersedes)[0]
        with self.database.transaction() as tx:
            work.create_item(tx, WorkItem(item_id, stage, first.org_id, first.signal))
        result = ItemResult(item_id, made=made, superseded=[ref(each) for each in supersedes])
        assert commit_item(self.database, result) is Outcome.COMMITTED
        return item_id

    def live(self, signal: str = "logs", hours: float = 1.0, **options: object) -> Segment:
        made = self.segment(signal, hours, **options)  # type: ignore[arg-type]
        self.commit(made)
        return made

    def age(self, *segments: Segment, seconds: float = 3_600.0) -> None:
        """The segments ended longer ago than they did."""
        with self.database.transaction() as tx:
            for each in segments:
                tx.execute(
                    "UPDATE segment SET superseded_at = superseded_at - make_interval(secs => %s)"
                    " WHERE segment_id = %s",
                    [seconds, each.segment_id],
                )

    def state(self, segment: Segment) -> str | None:
        with self.database.transaction() as tx:
            row = tx.execute("SELECT state FROM segment WHERE segment_id = %s", [segment.segment_id]).fetchone()
        return None if row is None else str(row["state"])

    def has(self, segment: Segment) -> bool:
        """Whether all its objects are there. Some without the others is a failure of its own."""
        listed = {meta.key for meta in self.store.list(keys.COOKED_PREFIX)}
        found = [key in listed for key in keys.segment_keys(segment)]
        assert all(found) or not any(found)
        return all(found)

    def sweep(self, *, listing: bool = False) -> Swept:
        return sweep_round(self.settings, self.database, self.store, listing=listing)

    def would(self, *, listing: bool = True) -> list[Finding]:
        found: list[Finding] = []
        dry_run(self.settings, self.database, self.store, listing=listing, limit=100, on_found=found.append)
        return found


DAY_S = NS_PER_DAY / NS_PER_S
