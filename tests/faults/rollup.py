"""The crash matrix of rollups: boxer and worker killed at each crash point, on both buses, while a reader looks on.

The seed draws the samples of three closed days, how they are cut into segments, which of them come late, how many share
a window, and at which passing the victim dies. In the end every tier is the rollup of all raw samples; then all
messages come again, and nothing may change. All along, a reader takes snapshots of the index: whatever it sees as clean
must hold exactly the raw samples that it sees.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.bus import topics
from lakerunner.index.overdue import Overdue
from lakerunner.index.segments import live_segments
from lakerunner.model.rollup_window import Window
from lakerunner.model.segment import Segment
from lakerunner.model.signals import METRICS
from lakerunner.model.signals.tiers import COUNT, ROLLED_TIERS_S
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.rollup.stage import ROLLUP
from lakerunner.runtime.stop import Stop
from tests.faults import clean_roles, matrix
from tests.faults.clean_roles import Loop, beside, until, work
from tests.faults.matrix import Matrix
from tests.faults.victims import kill_role
from tests.index.window_states import window_states
from tests.pipeline.rollup.naive import Sample
from tests.pipeline.rollup.test_rollup_end_to_end import raw_equal
from tests.pipeline.rollup.tier_lake import ALWAYS, DAY_MS, HOUR_MS, ORG, add, roll_up_all, runner

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
#: With samples, all of them closed.
DAYS = 3
_TOPICS = (topics.made(METRICS, "rollup").name, topics.work(METRICS, "rollup").name)
_GROUPS = ("boxer-rollup", "rollup")


class Trial(matrix.Trial):
    #: The windows that the victim is to be given.
    to_bundle = "dirty AND tier_s <= 300"
    #: Per window. If they are few, a day is several items, and some of its windows are joined later.
    rows: tuple[int, ...] = (4, 8, 32, 1_000)

    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        return {"pipeline": {"rollup_pause_s": 0.05, "rollup_segment_rows": self.draw.choice(self.rows)}}

    def run(self) -> str:
        self._samples: list[Sample] = []
        self.looks = 0
        self._add()
        self._prepare()
        self._kill()
        lake = self.lake
        with beside(self._announcer(), clean_roles.relay(lake), self._boxer(), self._worker(), self._reader()):
            # Late rows, while the rest is in work.
            self._add()
            until(self._is_clean, "all windows are clean")
        self._check()
        before = self._live()
        self.publish_again(_TOPICS)
        with beside(clean_roles.relay(lake), self._boxer(), self._worker()):
            until(lambda: self.is_idle(_GROUPS), "what was published again is done")
        assert self._live() == before, "messages that came again changed something"
        return f"samples {len(self._samples)} segments {len(before)} looks {self.looks}"

    def _prepare(self) -> None:
        """What is done before the victim starts."""

    def _add(self) -> None:
        """Samples of some hours in some segments, none of them twice."""
        known = {(each.tid, each.time) for each in self._samples}
        added = []
        for nth in range(self.draw.randint(20, 200)):
            # Every day has some.
            day_ms = DAY_MS - nth % DAYS * 24 * HOUR_MS
            time_ms = day_ms + self.draw.randint(1, 6) * HOUR_MS - self.draw.choice([0, self.draw.randrange(HOUR_MS)])
            tid = self.draw.randrange(6)
            if (tid, time_ms) not in known:
                known.add((tid, time_ms))
                added.append(Sample(tid, time_ms, float(self.draw.randrange(100))))
        self._samples += added
        parts = self.draw.randint(1, 4)
        for part in range(parts):
            days: dict[int, list[Sample]] = {}
            for sample in added[part::parts]:
                # A row at midnight belongs to the day before. Wider segments would not create windows.
                days.setdefault((sample.time - 1) // (24 * HOUR_MS), []).append(sample)
            for samples in days.values():
                add(self.lake, samples)

    def _kill(self) -> None:
        """Bring the work to the victim and let it die there."""
        lake, role = self.lake, POINTS[self.cell.point]
        # Each day is at least one item.
        passing = self.draw.randint(1, DAYS)
        reconcile(lake.database, [ROLLUP], Overdue(300, 60))
        with beside(clean_roles.relay(lake)):
            if role == "rollup":
                with beside(self._boxer()):
                    until(lambda: self._windows(f"{self.to_bundle} AND item_id IS NULL") == 0, "all is bundled")
                until(lambda: self.count("outbox WHERE published_at IS NULL") == 0, "all items are on the bus")
            kill_role(lake, role, self.cell.point, passing, on_spark=self.cell.seed == 0)

    def _announcer(self) -> Loop:
        def run(stop: Stop) -> None:
            while not stop.wait(0.3):
                reconcile(self.lake.database, [ROLLUP], Overdue(0.5, 0.3))

        return run

    def _boxer(self) -> Loop:
        def run(stop: Stop) -> None:
            with self.lake.consumer("boxer-rollup", _TOPICS[0]) as consumer:
                Boxer(ROLLUP, self.lake.database, consumer, self.lake.settings.pipeline).run(stop)

        return run

    def _worker(self) -> Loop:
        def run(stop: Stop) -> None:
            lake = self.lake
            with lake.consumer("rollup", _TOPICS[1]) as consumer:
                work(ROLLUP, lake, consumer, runner(lake), stop)

        return run

    def _reader(self) -> Loop:
        def run(stop: Stop) -> None:
            while not stop.wait(0.05):
                self._look()
                self.looks += 1

        return run

    def _look(self) -> None:
        with self.lake.database.transaction() as tx:
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
        return pq.read_table(self.lake.file(segment), columns=["timestamp"]).column(0).cast(pa.int64()).combine_chunks()

    def _counted(self, segment: Segment, first: int, last: int) -> int:
        table = pq.read_table(self.lake.file(segment), columns=["timestamp", COUNT])
        times = table.column("timestamp").cast(pa.int64())
        inside = table.filter(pc.and_(pc.greater(times, first), pc.less_equal(times, last)))
        return int(pc.sum(inside.column(COUNT)).as_py() or 0)

    def _windows(self, condition: str) -> int:
        return self.count(f"rollup_window WHERE {condition}")

    def _is_clean(self) -> bool:
        unsettled = self._windows("dirty OR NOT settled AND tier_s <= 300")
        return unsettled == 0 and self.is_idle(_GROUPS)

    def _live(self) -> set[uuid.UUID]:
        with self.lake.database.transaction() as tx:
            found = [live_segments(tx, ORG, METRICS.name, ALWAYS, tier_s) for tier_s in ROLLED_TIERS_S]
        return {segment.segment_id for segments in found for segment in segments}

    def _check(self) -> None:
        for tier_s in ROLLED_TIERS_S:
            assert raw_equal(self.lake, self._samples, tier_s), f"tier {tier_s} differs from the rollup of all samples"


class JoinTrial(Trial):
    """The windows were made hour by hour, as those of a day that was open then. The victim joins them."""

    to_bundle = "NOT settled AND tier_s <= 300"
    #: Enough for neighbours, so that each day has something to join.
    rows = (64, 1_000)

    def _prepare(self) -> None:
        roll_up_all(self.lake)


MATRIX = Matrix("rollup", POINTS, Trial)
#: Joining is what the rollup does as well, at the same points.
JOIN_MATRIX = Matrix("join", POINTS, JoinTrial)
