"""The crash matrix of the sweeper: killed at each point, on both buses, while compaction runs and snapshots are read.

The lake has everything that a sweeper finds: merged segments, segments past their retention, orphans, a live segment
whose object is gone, and raw objects to be deleted after ingest. A reader takes snapshots of the index, waits for a
part of the grace period, and then reads all their objects: each is there, and rows of a signal are there all or not at
all. In the end a clean sweeper finishes: the bucket has the objects of live segments and no others, and the ledger
names everything that was deleted once.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq

from lakerunner.bus import topics
from lakerunner.index.orgs import create_org
from lakerunner.index.profiles import StorageProfile, create_profile
from lakerunner.index.segments import live_segments
from lakerunner.index.sweep_ledger import list_entries
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.errors import Missing
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS, TRACES
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.stop import Stop
from lakerunner.store import keys
from tests.faults import matrix
from tests.faults.clean_roles import beside, relay, until
from tests.faults.matrix import Matrix
from tests.faults.victims import ForkedVictim, kill_role
from tests.pipeline.compact.small_lake import compact, ingest, run_here
from tests.pipeline.lake import COLLECTOR, ORG, identities, otlp

POINTS = (
    "sweep_before_expiry",
    "sweep_after_expiry",
    "sweep_before_delete",
    "sweep_half_deleted",
    "sweep_after_delete",
    "sweep_after_record",
    "sweep_before_orphans",
    "sweep_orphans_recorded",
    "sweep_after_orphans",
    "sweep_before_lost",
    "sweep_after_lost",
    "sweep_before_raw",
    "sweep_raw_deleted",
)
_GRACE_S = 2.0
#: Longer than an attempt of the compaction that runs beside.
_ORPHAN_GRACE_S = 4.0
_ALWAYS = TimeRange(0, 1 << 62)
_MADE, _WORK = topics.made(LOGS, "compact").name, topics.work(LOGS, "compact").name
_GROUPS = ("boxer-compact", "compact")


class Trial(matrix.Trial):
    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "pipeline": {"compact_wait_s": 0.1, "compact_segments": 2, "reconcile_after_s": 0.5},
            "sweep": {"grace_s": _GRACE_S, "orphan_grace_s": _ORPHAN_GRACE_S, "listing_interval_s": 0.5},
            "retention": {"traces_s": 60.0},
            "upkeep": {"interval_s": 0.2},
        }

    def run(self) -> str:
        self.reads = self.refused = 0
        self._prepare()
        with beside(relay(self.lake), self._reader):
            kill_role(self.lake, "sweeper", self.cell.point, 1)
            with beside(self._boxer, self._worker), ForkedVictim(self.lake, "sweeper", "nowhere:1") as sweeper:
                until(self._has_ended, "a clean sweeper finishes")
                assert not sweeper.died_by_itself
        self._check()
        objects = len(self._listed())
        return f"objects left {objects} ledger {len(self._ledger())} reads {self.reads} refused {self.refused}"

    def _prepare(self) -> None:
        profile = StorageProfile(
            uuid.uuid4(), ORG, COLLECTOR, own_bucket(self.lake.settings), keys.raw_prefix(ORG), delete_raw_after_s=600.0
        )
        with self.lake.database.transaction() as tx:
            create_org(tx, "acme", ORG)
            create_profile(tx, profile)
        raws = []
        for signal in (LOGS, METRICS, TRACES):
            for _ in range(self.draw.randint(2, 4)):
                body = otlp(signal, 4 * self.draw.randint(3, 20), seed=self.draw.randrange(1 << 30))
                raws.append(self.lake.put(signal, body))
                ingest(self.lake, raws[-1])
        self._raw_keys = {raw.key for raw in raws}
        with self.lake.database.transaction() as tx:
            tx.execute("UPDATE raw_object SET ended_at = ended_at - interval '700 s'")
        victim = self.draw.choice(self.lake.segments(METRICS))
        orphaned = self.draw.choice(self.lake.segments(LOGS))
        self._orphans = self._add_orphan(orphaned)
        # Two of the logs' segments are merged now, the others while the sweeper runs.
        merged = self.lake.segments(LOGS)[:2]
        compact(self.lake, merged)
        self._rows = {signal: identities(self.lake.rows(signal), signal) for signal in (LOGS, TRACES)}
        self._ended = {segment.segment_id for segment in (*merged, *self.lake.segments(TRACES))}
        self._lost = victim
        self.lake.store.delete(keys.segment_keys(victim)[:1])
        self._kept = {each.segment_id: self._rows_in(each) for each in self.lake.segments(METRICS) if each != victim}

    def _add_orphan(self, segment: Segment) -> list[str]:
        """The objects of an attempt that died before its commit."""
        lost = replace(segment, segment_id=fresh_id())
        for key, source in zip(keys.segment_keys(lost), keys.segment_keys(segment), strict=True):
            self.lake.store.put(key, self.lake.store.get(source))
        return list(keys.segment_keys(lost))

    def _reader(self, stop: Stop) -> None:
        while not stop.wait(0.02):
            for signal in (LOGS, METRICS, TRACES):
                self._read(signal)

    def _read(self, signal: Signal) -> None:
        asked_at_s = time.monotonic()
        with self.lake.database.transaction() as tx:
            segments = live_segments(tx, ORG, signal.name, _ALWAYS)
        time.sleep(self.draw.random() * 0.5 * _GRACE_S)
        try:
            rows = {each.segment_id: self._rows_in(each) for each in segments if each != self._lost}
        except Missing:
            # A query knows when its snapshot is too old, and refuses; before that, everything must be there.
            assert time.monotonic() - asked_at_s > _GRACE_S, f"{signal}: an object of a young snapshot is gone"
            self.refused += 1
            return
        if signal is METRICS:
            assert rows == self._kept, "metrics: a segment that nobody ended is not as it was"
        else:
            possible = {LOGS: (len(self._rows[LOGS]),), TRACES: (len(self._rows[TRACES]), 0)}[signal]
            assert sum(rows.values()) in possible, f"{signal}: a snapshot has {sum(rows.values())} of {possible} rows"
        self.reads += 1

    def _rows_in(self, segment: Segment) -> int:
        """All its objects are opened; rows are those of the first."""
        files = [self.lake.file(segment, table) for table in range(len(keys.segment_keys(segment)))]
        rows, *_ = [pq.read_metadata(file).num_rows for file in files]
        return int(rows)

    def _boxer(self, stop: Stop) -> None:
        with self.consumer("boxer-compact", [_MADE]) as consumer:
            Boxer(COMPACT, self.lake.database, consumer, self.lake.settings.pipeline).run(stop)

    def _worker(self, stop: Stop) -> None:
        runner = CompactRunner(self.lake.settings, self.lake.database, run_here)
        with self.consumer("compact", [_WORK]) as consumer:
            Worker(COMPACT, self.lake.database, consumer, self.lake.settings.pipeline, runner, 3).run(stop)

    def _listed(self) -> set[str]:
        return {meta.key for meta in self.lake.store.list(keys.COOKED_PREFIX)}

    def _named(self) -> set[str]:
        """Objects of live segments, and what is left of the lost one."""
        live = [segment for signal in (LOGS, METRICS, TRACES) for segment in self.lake.segments(signal)]
        return {key for segment in live for key in keys.segment_keys(segment)} | set(keys.segment_keys(self._lost)[1:])

    def _has_ended(self) -> bool:
        return (
            self.count("segment WHERE state NOT IN ('live', 'lost')") == 0
            and self._state(self._lost.segment_id) == "lost"
            and len(self.lake.segments(LOGS)) == 1
            and self._listed() == self._named()
            and not any(meta.key in self._raw_keys for meta in self.lake.store.list(keys.raw_prefix(ORG)))
            and self._raw_keys <= {entry.name for entry in self._ledger()}
        )

    def _state(self, segment_id: uuid.UUID) -> str:
        return str(self.lake.value("SELECT state FROM segment WHERE segment_id = %s", [segment_id]))

    def _ledger(self) -> list[Any]:
        with self.lake.database.transaction() as tx:
            return list_entries(tx, 1_000)

    def _check(self) -> None:
        assert identities(self.lake.rows(LOGS), LOGS) == self._rows[LOGS], "logs: not the same rows"
        assert self.lake.segments(TRACES) == [], "traces are past their retention"
        entries = Counter(entry.name for entry in self._ledger())
        # An orphan is recorded before it is deleted, so a killed sweeper may record it again.
        twice = [name for name, times in entries.items() if times > 1 and name not in self._orphans]
        assert not twice, f"recorded more than once: {twice}"
        wanted = {str(each) for each in self._ended} | set(self._orphans) | self._raw_keys
        assert wanted <= entries.keys(), f"not in the ledger: {wanted - entries.keys()}"


MATRIX = Matrix("sweep", POINTS, Trial)
