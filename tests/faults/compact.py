"""The crash matrix of compaction: boxer and worker killed at each point, on both buses, while rows are counted.

Rows are read from one snapshot of the index again and again: each reading finds all rows, before and after every
commit. In the end every topic is published again, and all rows are there once. Seed 0 kills tasks of a real Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakerunner.bus import topics
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.runtime.stop import Stop
from tests.faults import matrix
from tests.faults.clean_roles import beside, relay, until, work
from tests.faults.matrix import Matrix
from tests.faults.victims import kill_role
from tests.pipeline.compact.small_lake import ingest, run_here
from tests.pipeline.lake import identities, otlp

#: Point -> the role that passes it.
POINTS: Mapping[str, str] = {
    "boxer_before_bundle": "boxer-compact",
    "boxer_after_bundle": "boxer-compact",
    "boxer_before_bus_commit": "boxer-compact",
    "compact_after_fetch": "compact",
    "compact_after_merge": "compact",
    "compact_after_upload": "compact",
    "before_commit": "compact",
    "after_commit": "compact",
    "worker_before_bus_commit": "compact",
    "worker_after_bus_commit": "compact",
}
_GROUPS = ("boxer-compact", "compact")
_MADE = tuple(topics.made(signal, "compact").name for signal in SIGNALS)
_WORK = tuple(topics.work(signal, "compact").name for signal in SIGNALS)


class Trial(matrix.Trial):
    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        return {"pipeline": {"compact_wait_s": 0.1, "compact_segments": 2}}

    def run(self) -> str:
        self.rows: dict[Signal, list[tuple[object, ...]]] = {}
        self.readings = 0
        self._ingest()
        before = sum(len(self.lake.segments(signal)) for signal in self.rows)
        role = POINTS[self.cell.point]
        with beside(relay(self.lake), self._reader):
            if role == "compact":
                with beside(self._boxer):
                    until(lambda: self.count("work_item WHERE state = 'open'") > 0, "something is to be merged")
            passing = self.draw.randint(1, 3) if self.cell.point.endswith("bus_commit") else 1
            kill_role(self.lake, role, self.cell.point, passing, on_spark=self.cell.seed == 0)
            with beside(self._boxer, self._worker):
                until(self._has_ended, "a clean run merges all")
                self.publish_again((*_MADE, *_WORK))
                until(self._has_ended, "what was published again is done")
        self._check()
        after = sum(len(self.lake.segments(signal)) for signal in self.rows)
        rows = sum(map(len, self.rows.values()))
        return f"segments {before} -> {after} rows {rows} readings {self.readings}"

    def _ingest(self) -> None:
        for signal in self.draw.sample(SIGNALS, self.draw.randint(1, 2)):
            for _ in range(self.draw.randint(2, 5)):
                seed = self.draw.randrange(1 << 30)
                ingest(self.lake, self.lake.put(signal, otlp(signal, 4 * self.draw.randint(3, 30), seed=seed)))
            self.rows[signal] = identities(self.lake.rows(signal), signal)

    def _reader(self, stop: Stop) -> None:
        """Count the rows of one snapshot, as a query does. Files of superseded segments are still there."""
        while not stop.wait(0.05):
            for signal, rows in self.rows.items():
                found = self.lake.row_count(signal)
                assert found == len(rows), f"{signal}: a reading found {found} of {len(rows)} rows"
            self.readings += 1

    def _boxer(self, stop: Stop) -> None:
        with self.consumer("boxer-compact", _MADE) as consumer:
            Boxer(COMPACT, self.lake.database, consumer, self.lake.settings.pipeline).run(stop)

    def _worker(self, stop: Stop) -> None:
        runner = CompactRunner(self.lake.settings, self.lake.database, run_here)
        with self.consumer("compact", _WORK) as consumer:
            work(COMPACT, self.lake, consumer, runner, stop, attempts=3)

    def _has_ended(self) -> bool:
        return all(len(self.lake.segments(signal)) == 1 for signal in self.rows) and self.is_idle(_GROUPS)

    def _check(self) -> None:
        for signal, rows in self.rows.items():
            assert identities(self.lake.rows(signal), signal) == rows, f"{signal}: not the same rows"
        assert self.count("segment WHERE state = 'superseded' AND superseded_by IS NULL") == 0


MATRIX = Matrix("compact", POINTS, Trial)
