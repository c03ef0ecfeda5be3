"""The crash matrix of compaction: boxer and worker killed at each point, on both buses, while rows are counted.

`make faults` runs this file after that of ingest. A cell is a bus, a point and a seed. Rows are read from one snapshot
of the index again and again: each reading finds all rows, before and after every commit. In the end every topic is
published again, and all rows are there once.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from lakerunner.bus import topics
from lakerunner.index.outbox import Outgoing
from lakerunner.model.errors import LakeError
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.compact.stage import COMPACT, CompactRunner
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.stop import Stop
from tests.components.kafka import KafkaBroker, kafka_jars
from tests.components.postgres import PostgresServer
from tests.faults.clean_roles import beside, relay, until
from tests.faults.victims import ForkedVictim
from tests.pipeline.compact.small_lake import ingest, run_here
from tests.pipeline.lake import Lake, identities, otlp, settings_of

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
BUSES = ("postgres", "kafka")
_GROUPS = ("boxer-compact", "compact")
_MADE = tuple(topics.made(signal, "compact").name for signal in SIGNALS)
_WORK = tuple(topics.work(signal, "compact").name for signal in SIGNALS)


@dataclass(frozen=True)
class Cell:
    bus: str
    point: str
    seed: int

    def __str__(self) -> str:
        return f"{self.bus}/compact/{self.point}/{self.seed}"


class Trial:
    def __init__(self, cell: Cell, url: str, folder: Path, kafka: KafkaBroker | None) -> None:
        self._cell = cell
        self._draw = random.Random(str(cell))
        settings = settings_of(url, folder, compact_wait_s=0.1, compact_segments=2)
        bus = {"prefix": f"f{uuid.uuid4().hex[:8]}."}
        if cell.bus == "kafka":
            assert kafka is not None
            bus |= {"kind": "kafka", "brokers": kafka.brokers}
        self.lake = Lake(settings.model_copy(update={"bus": settings.bus.model_copy(update=bus)}))
        self.rows: dict[Signal, list[tuple[object, ...]]] = {}
        self.readings = 0

    def run(self) -> str:
        self._ingest()
        before = sum(len(self.lake.segments(signal)) for signal in self.rows)
        with beside(relay(self.lake), self._reader):
            if POINTS[self._cell.point] == "compact":
                with beside(self._boxer):
                    until(lambda: self._open_items() > 0, "something is to be merged")
            passing = self._draw.randint(1, 3) if self._cell.point.endswith("bus_commit") else 1
            with ForkedVictim(self.lake, POINTS[self._cell.point], f"{self._cell.point}:{passing}") as victim:
                until(lambda: victim.died_by_itself, "the victim dies")
            with beside(self._boxer, self._worker):
                until(self._has_ended, "a clean run merges all")
                self._publish_again()
                until(self._has_ended, "what was published again is done")
        self._check()
        after = sum(len(self.lake.segments(signal)) for signal in self.rows)
        rows = sum(map(len, self.rows.values()))
        return f"segments {before} -> {after} rows {rows} readings {self.readings}"

    def _ingest(self) -> None:
        for signal in self._draw.sample(SIGNALS, self._draw.randint(1, 2)):
            for _ in range(self._draw.randint(2, 5)):
                seed = self._draw.randrange(1 << 30)
                ingest(self.lake, self.lake.put(signal, otlp(signal, 4 * self._draw.randint(3, 30), seed=seed)))
            self.rows[signal] = identities(self.lake.rows(signal), signal)

    def _reader(self, stop: Stop) -> None:
        """Count the rows of one snapshot, as a query does. Files of superseded segments are still there."""
        while not stop.wait(0.05):
            for signal, rows in self.rows.items():
                found = self.lake.row_count(signal)
                assert found == len(rows), f"{signal}: a reading found {found} of {len(rows)} rows"
            self.readings += 1

    def _boxer(self, stop: Stop) -> None:
        with self.lake.consumer("boxer-compact", *_MADE) as consumer:
            Boxer(COMPACT, self.lake.database, consumer, self.lake.settings.pipeline).run(stop)

    def _worker(self, stop: Stop) -> None:
        runner = CompactRunner(self.lake.settings, self.lake.database, run_here)
        with self.lake.consumer("compact", *_WORK) as consumer:
            Worker(COMPACT, self.lake.database, consumer, self.lake.settings.pipeline, runner, 3).run(stop)

    def _open_items(self) -> int:
        return int(self.lake.value("SELECT count(*) FROM work_item WHERE state = 'open'"))

    def _has_ended(self) -> bool:
        return (
            self._open_items() == 0
            and all(len(self.lake.segments(signal)) == 1 for signal in self.rows)
            and self.lake.value("SELECT count(*) FROM outbox WHERE published_at IS NULL") == 0
            and all(lag.behind == 0 for group in _GROUPS for lag in self.lake.bus.lag(group))
        )

    def _publish_again(self) -> None:
        for name in (*_MADE, *_WORK):
            self.lake.bus.publish([Outgoing(each.topic, each.key, each.payload) for each in self.lake.bus.read(name)])

    def _check(self) -> None:
        for signal, rows in self.rows.items():
            assert identities(self.lake.rows(signal), signal) == rows, f"{signal}: not the same rows"
        lost = "SELECT count(*) FROM segment WHERE state = 'superseded' AND superseded_by IS NULL"
        assert self.lake.value(lost) == 0

    def close(self, kafka: KafkaBroker | None) -> None:
        self.lake.close()
        if kafka is not None and self._cell.bus == "kafka":
            kafka.delete_topics(self.lake.settings.bus.prefix)


def run_cell(cell: Cell, postgres: PostgresServer, kafka: KafkaBroker | None) -> str:
    """Returns the figures; raises what does not hold."""
    url = postgres.new_database()
    with tempfile.TemporaryDirectory(prefix="lakerunner-faults-", ignore_cleanup_errors=True) as folder:
        trial = Trial(cell, url, Path(folder), kafka)
        try:
            return trial.run()
        finally:
            trial.close(kafka)
            postgres.drop_database(url)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.compact", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="seeds of every point on every bus")
    parser.add_argument(
        "--only", default="", help="cells whose name begins with this, as kafka/compact/before_commit/3"
    )
    chosen = parser.parse_args()
    cells = [Cell(bus, point, seed) for bus in BUSES for point in POINTS for seed in range(chosen.seeds)]
    cells = [cell for cell in cells if str(cell).startswith(chosen.only)]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    failures = 0
    with tempfile.TemporaryDirectory(prefix="lakerunner-faults-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        postgres = PostgresServer(folder / "pg")
        postgres.start()
        kafka = None
        if any(cell.bus == "kafka" for cell in cells):
            kafka = KafkaBroker(kafka_jars(), folder / "kafka")
            kafka.start()
        try:
            for cell in cells:
                started = time.monotonic()
                try:
                    found, verdict = run_cell(cell, postgres, kafka), "ok"
                except (AssertionError, LakeError) as error:
                    found, verdict = str(error), "FAILED"
                    failures += 1
                print(f"{cell!s:<50} {verdict} {time.monotonic() - started:5.1f} s  {found}", flush=True)  # noqa: T201
        finally:
            if kafka is not None:
                kafka.stop()
            postgres.stop()
    print(f"{len(cells) - failures} of {len(cells)} cells of compaction hold")  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
