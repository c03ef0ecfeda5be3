"""The crash matrix of deletions: whoever takes part is killed at each point, on both buses, while queries run.

Rows are deleted by a selector and a range of times. From the request on, every query answers without them and with all
others, whatever dies. Compaction merges the same segments at the same time: rows go once, and none of the others. In
the end every topic is published again, and nothing may change. Seed 0 kills tasks of a real Spark.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.bus import topics
from lakerunner.index.overdue import Overdue
from lakerunner.model.deletion import DeletionState
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, TRACES
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.delete.request import begin_due
from lakerunner.pipeline.delete.stage import DELETE, DeleteRunner
from lakerunner.pipeline.delete.task import run_task
from lakerunner.pipeline.reconcile import reconcile
from lakerunner.pipeline.stage import Runner, Stage
from lakerunner.query.lake import open_lake
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.series.times import QueryTimes
from lakerunner.runtime.stop import Stop
from tests.faults import matrix
from tests.faults.clean_roles import Loop, beside, relay, until, work
from tests.faults.matrix import Matrix
from tests.faults.victims import REQUEST_VARIABLE, kill_role
from tests.formats.otlp_samples import START_NS
from tests.pipeline.compact.small_lake import ingest, run_here
from tests.pipeline.delete import deleting
from tests.pipeline.lake import ORG, otlp

#: Point -> the role that passes it.
POINTS: Mapping[str, str] = {
    "delete_requested": "requester",
    "delete_before_begin": "sweeper",
    "delete_after_begin": "sweeper",
    "boxer_before_bundle": "boxer-delete",
    "boxer_after_bundle": "boxer-delete",
    "boxer_before_bus_commit": "boxer-delete",
    "delete_after_read": "delete",
    "delete_after_write": "delete",
    "before_commit": "delete",
    "after_commit": "delete",
    "worker_before_bus_commit": "delete",
    "worker_after_bus_commit": "delete",
}
_STAGES = (DELETE, COMPACT)
_GROUPS = tuple(name for stage in _STAGES for name in (f"boxer-{stage.name}", stage.name))
_HOUR_NS = 3_600 * 10**9


class Trial(matrix.Trial):
    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        return {
            "pipeline": {"compact_wait_s": 0.1, "compact_segments": 2, "reconcile_after_s": 0.5},
            "upkeep": {"interval_s": 0.2},
        }

    def run(self) -> str:
        self.queries = 0
        self._ingest()
        self._queried = open_lake(self.lake.settings, self.lake.database)
        try:
            return self._run()
        finally:
            self._queried.close()

    def _run(self) -> str:
        before = self._answer()
        deletion_id, expected = self._request(before)
        self._expected = expected
        with beside(relay(self.lake), self._reader):
            self._kill()
            with beside(*self._clean_roles()):
                until(lambda: self._has_ended(deletion_id), "a clean run deletes all")
                self.publish_again(self._topics())
                until(lambda: self._has_ended(deletion_id), "what was published again is done")
        done = deleting.found(self.lake.database, ORG, deletion_id)
        assert self.lake.row_count(self._signal) == len(expected), "rows that are hidden, and not gone"
        assert done.rows_deleted == len(before) - len(expected), f"the receipt says {done.rows_deleted} rows"
        assert self._answer() == expected
        return f"rows {len(before)} -> {len(expected)} queries {self.queries}"

    def _ingest(self) -> None:
        self._signal: Signal = self.draw.choice([LOGS, TRACES])
        for _ in range(self.draw.randint(2, 6)):
            body = otlp(self._signal, 4 * self.draw.randint(3, 30), seed=self.draw.randrange(1 << 30))
            ingest(self.lake, self.lake.put(self._signal, body))

    def _request(self, before: list[tuple[int, str]]) -> tuple[uuid.UUID, list[tuple[int, str]]]:
        """Ask for the deletion of one service, for all or for some of its time; return what must be left."""
        service = self.draw.choice(sorted({name for _, name in before}))
        begin_ns = min(time_ns for time_ns, name in before if name == service)
        # A time after its first row: a request that selects no row makes no work in which a role could die.
        ends_ns = [time_ns for time_ns, _ in before if time_ns > begin_ns]
        end_ns = max(time_ns for time_ns, _ in before) + 1
        if ends_ns and self.draw.random() < 0.5:
            end_ns = self.draw.choice(ends_ns)
        selector = f'{{service_name="{service}"}}'
        # A deletion that waits is begun by the sweeper.
        wait_s = 1e-6 if POINTS[self.cell.point] == "sweeper" else 0.0
        request = (self._signal.name, selector, START_NS - _HOUR_NS, end_ns, wait_s)
        if POINTS[self.cell.point] == "requester":
            env = {REQUEST_VARIABLE: json.dumps([str(ORG), *request])}
            kill_role(self.lake, "requester", self.cell.point, 1, **env)
            assert self.count("deletion") == 0 and self._answer() == before, "half of a request"
        deletion_id = deleting.request(self.lake.database, ORG, *request)
        return deletion_id, [row for row in before if row[1] != service or row[0] >= end_ns]

    def _kill(self) -> None:
        role = POINTS[self.cell.point]
        if role == "requester":
            return
        if role == "delete":
            with beside(self._boxer(DELETE)):
                until(lambda: self.count("work_item WHERE stage = 'delete' AND state = 'open'") > 0, "there is work")
        passing = self.draw.randint(1, 3) if self.cell.point.endswith("bus_commit") else 1
        kill_role(self.lake, role, self.cell.point, passing, on_spark=self.cell.seed == 0)

    def _clean_roles(self) -> list[Loop]:
        settings, database = self.lake.settings, self.lake.database
        deleter = DeleteRunner(settings, database, lambda tasks: [run_task(task) for task in tasks])
        return [
            self._sweeper,
            self._boxer(DELETE),
            self._worker(DELETE, deleter),
            self._boxer(COMPACT),
            self._worker(COMPACT, CompactRunner(settings, database, run_here)),
        ]

    def _sweeper(self, stop: Stop) -> None:
        """What the sweeper does for deletions: it begins them, and announces again what was not finished."""
        while not stop.wait(0.2):
            begin_due(self.lake.database)
            reconcile(self.lake.database, [DELETE], Overdue(0.5, 0.2))

    def _boxer(self, stage: Stage[Any]) -> Loop:
        def run(stop: Stop) -> None:
            names = [topics.made(self._signal, stage.name).name]
            with self.consumer(f"boxer-{stage.name}", names) as consumer:
                Boxer(stage, self.lake.database, consumer, self.lake.settings.pipeline).run(stop)

        return run

    def _worker(self, stage: Stage[Any], runner: Runner[Any]) -> Loop:
        def run(stop: Stop) -> None:
            with self.consumer(stage.name, [topics.work(self._signal, stage.name).name]) as consumer:
                work(stage, self.lake, consumer, runner, stop)

        return run

    def _topics(self) -> list[str]:
        return [make(self._signal, stage.name).name for stage in _STAGES for make in (topics.made, topics.work)]

    def _reader(self, stop: Stop) -> None:
        while not stop.wait(0.05):
            found = self._answer()
            assert found == self._expected, f"a query found {len(found)} rows, and not {len(self._expected)}"
            self.queries += 1

    def _answer(self) -> list[tuple[int, str]]:
        """Time and service of every row, by a query."""
        times = QueryTimes((START_NS - _HOUR_NS) // 10**6, (START_NS + _HOUR_NS) // 10**6, 0)
        plan = language("rows").compile("", times, QueryOptions(signal=self._signal.name))
        batches = list(self._queried.query(ORG).rows(plan))  # type: ignore[arg-type]
        rows = pa.Table.from_batches(batches).select([self._signal.time_column, "service_name"])
        times_ns = pc.cast(rows.column(0), pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()
        return sorted(zip(times_ns, rows.column(1).to_pylist(), strict=True))

    def _has_ended(self, deletion_id: uuid.UUID) -> bool:
        state = deleting.found(self.lake.database, ORG, deletion_id).state
        return state is DeletionState.DONE and self.is_idle(_GROUPS)


MATRIX = Matrix("delete", POINTS, Trial)
