"""The crash matrix of rollups: boxer and worker killed at each crash point, on both buses, while a reader looks on.

    python -m tests.faults.rollup --seeds 10 --only kafka/before_commit

The seed draws the samples, how they are cut into segments, which of them come late, and at which passing the victim
dies. In the end every tier is the rollup of all raw samples; then all messages come again, and nothing may change. All
along, a reader takes snapshots of the index: whatever it sees as clean must hold exactly the raw samples that it sees.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from lakerunner.bus import topics
from lakerunner.index.outbox import Outgoing
from lakerunner.index.overdue import Overdue
from lakerunner.index.rollup_windows import window_states
from lakerunner.index.segments import live_segments
from lakerunner.model.errors import LakeError
from lakerunner.model.rollup_window import Window
from lakerunner.model.segment import Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.signals.tiers import COUNT, ROLLED_TIERS_S
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.rollup.stage import ROLLUP
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.stop import Stop
from tests.faults import clean_roles
from tests.faults.clean_roles import Loop, beside, until
from tests.faults.ingest import BUSES, Components, components
from tests.faults.victims import ForkedVictim
from tests.pipeline.lake import Lake, settings_of
from tests.pipeline.rollup.naive import Sample
from tests.pipeline.rollup.test_rollup_end_to_end import raw_equal
from tests.pipeline.rollup.tier_lake import ALWAYS, DAY_MS, HOUR_MS, ORG, add, runner

#: Point -> the role that passes it.
POINTS: Mapping[str, str] = {
    "boxer_before_bundle": "boxer-rollup",
    "boxer_after_bundle": "boxer-rollup",
    "boxer_before_bus_commit": "boxer-rollup",
    "rollup_after_read": "rollup",
    "rollup_after_write": "rollup",
    "before_commit": "rollup",
    "after_commit": "rollup",
    "worker_before_bus_commit": "rollup",
    "worker_after_bus_commit": "rollup",
}
_TOPICS = (topics.made(METRICS, "rollup").name, topics.work(METRICS, "rollup").name)
_GROUPS = ("boxer-rollup", "rollup")


@dataclass(frozen=True)
class Cell:
    bus: str
    point: str
    seed: int

    def __str__(self) -> str:
        return f"{self.bus}/{self.point}/{self.seed}"


class Trial:
    def __init__(self, cell: Cell, url: str, folder: Path, shared: Components) -> None:
        self._cell = cell
        self._draw = random.Random(str(cell))
        self._shared = shared
        settings = settings_of(url, folder, rollup_pause_s=0.05)
        bus = {"prefix": f"f{uuid.uuid4().hex[:8]}."}
        if cell.bus == "kafka":
            assert shared.kafka is not None
            bus |= {"kind": "kafka", "brokers": shared.kafka.brokers}
        self._lake = Lake(settings.model_copy(update={"bus": settings.bus.model_copy(update=bus)}))
        self._samples: list[Sample] = []
        self.looks = 0

    def close(self) -> None:
        self._lake.close()
        if self._cell.bus == "kafka" and self._shared.kafka is not None:
            self._shared.kafka.delete_topics(self._lake.settings.bus.prefix)

    def run(self) -> str:
        self._add()
        self._kill()
        lake = self._lake
        with beside(self._announcer(), clean_roles.relay(lake), self._boxer(), self._worker(), self._reader()):
            # Late rows, while the rest is in work.
            self._add()
            until(self._is_clean, "all windows are clean")
        self._check()
        before = self._live()
        for name in _TOPICS:
            lake.bus.publish([Outgoing(each.topic, each.key, each.payload) for each in lake.bus.read(name)])
        with beside(clean_roles.relay(lake), self._boxer(), self._worker()):
            until(self._is_idle, "what was published again is done")
        assert self._live() == before, "messages that came again changed something"
        return f"samples {len(self._samples)} segments {len(before)} looks {self.looks}"

    def _add(self) -> None:
        """Samples of some hours in some segments, none of them twice."""
        known = {(each.tid, each.time) for each in self._samples}
        added = []
        for _ in range(self._draw.randint(20, 200)):
            time_ms = (
                DAY_MS + self._draw.randint(1, 6) * HOUR_MS - self._draw.choice([0, self._draw.randrange(HOUR_MS)])
            )
            tid = self._draw.randrange(6)
            if (tid, time_ms) not in known:
                known.add((tid, time_ms))
                added.append(Sample(tid, time_ms, float(self._draw.randrange(100))))
        self._samples += added
        parts = self._draw.randint(1, 4)
        for part in range(parts):
            if added[part::parts]:
                add(self._lake, added[part::parts])

    def _kill(self) -> None:
        """Bring the work to the victim and let it die there."""
        lake, role = self._lake, POINTS[self._cell.point]
        passing = self._draw.randint(1, 6)
        if self._cell.point == "rollup_after_read":
            passing = min(passing, 3)
        reconcile(lake.database, [ROLLUP], Overdue(300, 60))
        with beside(clean_roles.relay(lake)):
            if role == "rollup":
                with beside(self._boxer()):
                    until(lambda: self._count("dirty AND item_id IS NULL AND tier_s <= 300") == 0, "all is bundled")
                until(lambda: self._unpublished() == 0, "all items are on the bus")
            with ForkedVictim(lake, role, f"{self._cell.point}:{passing}") as victim:
                until(lambda: victim.died_by_itself, f"{role} dies")

    def _announcer(self) -> Loop:
        def run(stop: Stop) -> None:
            while not stop.wait(0.3):
                reconcile(self._lake.database, [ROLLUP], Overdue(0.5, 0.3))

        return run

    def _boxer(self) -> Loop:
        def run(stop: Stop) -> None:
            with self._lake.consumer("boxer-rollup", _TOPICS[0]) as consumer:
                Boxer(ROLLUP, self._lake.database, consumer, self._lake.settings.pipeline).run(stop)

        return run

    def _worker(self) -> Loop:
        def run(stop: Stop) -> None:
            lake = self._lake
            with lake.consumer("rollup", _TOPICS[1]) as consumer:
                Worker(ROLLUP, lake.database, consumer, lake.settings.pipeline, runner(lake), 5).run(stop)

        return run

    def _reader(self) -> Loop:
        def run(stop: Stop) -> None:
            while not stop.wait(0.05):
                self._look()
                self.looks += 1

        return run

    def _look(self) -> None:
        with self._lake.database.transaction() as tx:
            tx.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            states = window_states(tx, ORG, ALWAYS)
            raw = live_segments(tx, ORG, METRICS.name, ALWAYS, 0)
            tiers = {tier_s: live_segments(tx, ORG, METRICS.name, ALWAYS, tier_s) for tier_s in (60, 3_600)}
        times = [self._times(segment) for segment in raw]
        for state in states:
            if state.dirty or state.tier_s not in tiers:
                continue
            window = Window(ORG, state.tier_s, state.start_ns, state.end_ns)
            first, last = state.start_ns // 10**6, state.end_ns // 10**6
            expected = sum(
                int(pc.sum(pc.and_(pc.greater(each, first), pc.less_equal(each, last))).as_py()) for each in times
            )
            mine = [s for s in tiers[state.tier_s] if window.row_range.overlaps(s.time_range)]
            found = sum(self._counted(segment, first, last) for segment in mine)
            assert found == expected, f"{found} of {expected} samples in a clean window of {state.tier_s} s"

    def _times(self, segment: Segment) -> pa.Array:
        return (
            pq.read_table(self._lake.file(segment), columns=["timestamp"]).column(0).cast(pa.int64()).combine_chunks()
        )

    def _counted(self, segment: Segment, first: int, last: int) -> int:
        table = pq.read_table(self._lake.file(segment), columns=["timestamp", COUNT])
        times = table.column("timestamp").cast(pa.int64())
        inside = table.filter(pc.and_(pc.greater(times, first), pc.less_equal(times, last)))
        return int(pc.sum(inside.column(COUNT)).as_py() or 0)

    def _count(self, condition: str) -> int:
        return int(self._lake.value(f"SELECT count(*) FROM rollup_window WHERE {condition}"))

    def _unpublished(self) -> int:
        return int(self._lake.value("SELECT count(*) FROM outbox WHERE published_at IS NULL"))

    def _is_clean(self) -> bool:
        return self._count("dirty") == 0 and self._is_idle()

    def _is_idle(self) -> bool:
        behind = (lag.behind for group in _GROUPS for lag in self._lake.bus.lag(group))
        return self._unpublished() == 0 and not any(behind)

    def _live(self) -> set[uuid.UUID]:
        with self._lake.database.transaction() as tx:
            found = [live_segments(tx, ORG, METRICS.name, ALWAYS, tier_s) for tier_s in ROLLED_TIERS_S]
        return {segment.segment_id for segments in found for segment in segments}

    def _check(self) -> None:
        for tier_s in ROLLED_TIERS_S:
            assert raw_equal(self._lake, self._samples, tier_s), f"tier {tier_s} differs from the rollup of all samples"


def run_cell(cell: Cell, shared: Components) -> str:
    """Returns the figures; raises what does not hold."""
    url = shared.postgres.new_database()
    with tempfile.TemporaryDirectory(prefix="lakerunner-faults-", ignore_cleanup_errors=True) as folder:
        trial = Trial(cell, url, Path(folder), shared)
        try:
            return trial.run()
        finally:
            trial.close()
            shared.postgres.drop_database(url)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.rollup", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="seeds of every point on every bus")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument("--only", default="", help="cells whose name begins with this, as kafka/before_commit/3")
    chosen = parser.parse_args()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    cells = [Cell(bus, point, seed) for bus in BUSES for point in POINTS for seed in seeds]
    cells = [cell for cell in cells if str(cell).startswith(chosen.only)]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    failures, began = 0, time.monotonic()
    with components(kafka=any(cell.bus == "kafka" for cell in cells)) as shared:
        for cell in cells:
            started = time.monotonic()
            try:
                found, verdict = run_cell(cell, shared), "ok"
            except (AssertionError, LakeError) as error:
                found, verdict = f"{error}; again with --first-seed {cell.seed} --seeds 1 --only {cell}", "FAILED"
                failures += 1
                traceback.print_exc()
            print(f"{verdict:6} {cell!s:42} {found} ({time.monotonic() - started:.1f} s)", flush=True)  # noqa: T201
    print(f"{len(cells) - failures} of {len(cells)} cells hold ({time.monotonic() - began:.0f} s)")  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
