"""A ruler over a real lake: series of now written as segments, groups stored, and time that a test moves."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from lakerunner.index.alert_states import StoredState, read_states
from lakerunner.index.leases import Lease, acquire
from lakerunner.index.orgs import create_org
from lakerunner.index.rule_groups import GroupKey, put_group
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.ruler.role import Ruler
from lakerunner.ruler.shards import SHARDS
from lakerunner.rules.evaluation.vector import Sample
from lakerunner.runtime.settings import RulerSettings, Settings
from tests.query.lake_of_series import LakeOfSeries

#: A whole minute, some minutes ago.
BASE_MS = (time.time_ns() // 1_000_000 // 60_000 - 60) * 60_000


class Posted:
    """Takes what a receiver would get; a test may make it fail."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, Any]] = []
        self.fails = False

    def __call__(self, url: str, body: bytes) -> None:
        if self.fails:
            raise OSError("connection refused")
        self.bodies.append((url, orjson.loads(body)))


class LakeOfRules(LakeOfSeries):
    """Rulers of this lake are asked to look by the test; each look waits for what it started."""

    def __init__(self, folder: Path, url: str, org_id: uuid.UUID | None = None) -> None:
        super().__init__(folder, url)
        self.rulers: list[Ruler] = []
        self.posted = Posted()
        if org_id is None:
            self.clear()
        else:
            self.org_id = org_id

    def clear(self) -> None:
        """An org of its own for the next test, and no groups of others."""
        for ruler in self.rulers:
            ruler.close()
        self.rulers = []
        with self.database.transaction() as tx:
            tx.execute("DELETE FROM rule_group")
            tx.execute("DELETE FROM lease")
            self.org_id = create_org(tx, f"org-{uuid.uuid4().hex[:6]}").org_id
        self.posted = Posted()

    def ruler(self, **settings: Any) -> Ruler:
        given = {"arrival_s": 0, "interval_s": 60.0, "webhooks": "http://hook", "continuous": "off", **settings}
        ruler = Ruler(
            Settings(data=self.settings.data, index=self.settings.index, ruler=RulerSettings.model_validate(given))
        )
        for receiver in ruler.notifier.receivers:
            receiver.post = self.posted
        ruler._series_key = b""
        self.rulers.append(ruler)
        return ruler

    def add(self, name: str, values: Sequence[float | None], step_ms: int = 60_000, **labels: str) -> None:
        """Samples every minute from `BASE_MS`."""
        source = MemorySource()
        kept = [(BASE_MS + at * step_ms, value) for at, value in enumerate(values) if value is not None]
        series = LabelSet.of({"__name__": name, **labels})
        source.add(series, [at for at, _ in kept], [value for _, value in kept])
        self.commit(self.org_id, [self.put(self.org_id, list(source._series.values()))])

    def group(self, text: str, name: str = "g", org_id: uuid.UUID | None = None) -> GroupKey:
        key = GroupKey(org_id or self.org_id, "default", name)
        with self.database.transaction() as tx:
            put_group(tx, key, f"groups:\n- name: {name}\n{text}", "test")
        return key

    def leases(self, holder: str = "test") -> dict[int, Lease]:
        found = {shard: acquire(self.database, f"ruler/{shard}", holder, 600) for shard in range(SHARDS)}
        return {shard: lease for shard, lease in found.items() if lease is not None}

    def expire_leases(self) -> None:
        with self.database.transaction() as tx:
            tx.execute("UPDATE lease SET expires_at = '-infinity'")

    def look(self, ruler: Ruler, minute: float, leases: dict[int, Lease] | None = None) -> None:
        """Look at a minute, until nothing more is due then."""
        now_ms = round(BASE_MS + minute * 60_000)
        for _ in range(50):
            ruler.look(leases or self.leases(), now_ms)
            running = [held.running for held in ruler._held.values() if held.running is not None]
            if not running:
                break
            for each in running:
                each.exception(timeout=30)
        for receiver in ruler.notifier.receivers:
            while ruler.notifier.round(receiver, now_ms):
                pass

    def states(self) -> list[StoredState]:
        with self.database.transaction() as tx:
            return read_states(tx, self.org_id)

    def ask(self, ruler: Ruler, text: str, minute: float) -> list[Sample]:
        """What a query sees at a minute."""
        caller = ruler._org(self.org_id)[1]
        (held, *_) = ruler._held.values()
        with ruler._admission.listed(caller, "test", text) as query:
            return list(ruler._ask("promql", held.group, query)(text, round(BASE_MS + minute * 60_000)))


@contextmanager
def lake_of_rules(folder: Path, url: str) -> Iterator[LakeOfRules]:
    lake = LakeOfRules(folder, url)
    try:
        yield lake
    finally:
        lake.clear()
        lake.close()
