"""The crash matrix: every stage killed at each of its crash points, on both buses; afterwards every row is there once.

`make faults` runs this file, `make faults SEEDS=3 ONLY=kafka/boxer` a part of it. A cell is a bus, a point and a seed.
The seed draws how many objects of which signals and sizes there are, how they are bundled, and at which passing of the
point the victim dies. All events come three times; in the end every topic is published again and then read again from
its beginning. Seed 0 kills the ingest role with a Spark of its own; see `victims` for the others.
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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from lakerunner.model.errors import LakeError
from lakerunner.pipeline.spark.session import spark_session, stop_session
from lakerunner.runtime.settings import SparkSettings
from tests.components.kafka import KafkaBroker, kafka_jars
from tests.components.postgres import PostgresServer
from tests.faults.refused_store import run_refused
from tests.faults.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Point -> the stage that passes it.
POINTS: Mapping[str, str] = {
    "intake_before_record": "intake",
    "intake_after_record": "intake",
    "relay_after_publish": "relay",
    "boxer_before_bundle": "boxer",
    "boxer_after_bundle": "boxer",
    "boxer_before_bus_commit": "boxer",
    "ingest_after_read": "ingest",
    "ingest_after_write": "ingest",
    "before_commit": "ingest",
    "after_commit": "ingest",
    "worker_before_bus_commit": "ingest",
    "worker_after_bus_commit": "ingest",
}
#: Cells in which nobody dies, but the store refuses: see `refused_store`.
REFUSALS = ("store_refuses",)
BUSES = ("postgres", "kafka")


@dataclass(frozen=True)
class Cell:
    bus: str
    point: str
    seed: int

    @property
    def stage(self) -> str:
        return POINTS[self.point]

    @property
    def on_spark(self) -> bool:
        return self.stage == "ingest" and self.seed == 0

    def __str__(self) -> str:
        return f"{self.bus}/{self.point}/{self.seed}"

    def draws(self) -> random.Random:
        return random.Random(str(self))


@dataclass(frozen=True)
class Components:
    """What all cells share."""

    postgres: PostgresServer
    kafka: KafkaBroker | None
    spark: SparkSession


def run_cell(cell: Cell, components: Components) -> str:
    """Returns the figures; raises what does not hold."""
    url = components.postgres.new_database()
    with tempfile.TemporaryDirectory(prefix="lakerunner-faults-", ignore_cleanup_errors=True) as folder:
        if cell.point in REFUSALS:
            try:
                return run_refused(_bus_settings(cell, components), cell.seed, url, Path(folder))
            finally:
                components.postgres.drop_database(url)
        trial = Trial(cell, url, Path(folder), components)
        try:
            return trial.run()
        finally:
            trial.close()
            components.postgres.drop_database(url)


def _bus_settings(cell: Cell, components: Components) -> dict[str, str]:
    if cell.bus == "postgres":
        return {}
    assert components.kafka is not None
    return {"kind": "kafka", "brokers": components.kafka.brokers, "prefix": f"f{uuid.uuid4().hex[:8]}."}


@contextmanager
def components(*, kafka: bool) -> Iterator[Components]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakerunner-faults-", dir="/tmp")))
        folder.chmod(0o755)
        postgres = PostgresServer(folder / "pg")
        postgres.start()
        stack.callback(postgres.stop)
        broker = None
        if kafka:
            broker = KafkaBroker(kafka_jars(), folder / "kafka")
            broker.start()
            stack.callback(broker.stop)
        stack.callback(stop_session)
        yield Components(postgres, broker, spark_session(SparkSettings(master="local[2]")))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.ingest", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="seeds of every point on every bus")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them; 0 is the one with Spark")
    parser.add_argument("--only", default="", help="cells whose name begins with this, as kafka/before_commit/3")
    chosen = parser.parse_args()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    cells = [Cell(bus, point, seed) for bus in BUSES for point in (*POINTS, *REFUSALS) for seed in seeds]
    cells = [cell for cell in cells if str(cell).startswith(chosen.only)]
    # What the clean roles tell is of no interest here; a victim's last words are shown when it dies elsewhere.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    failures, started = 0, time.monotonic()
    with components(kafka=any(cell.bus == "kafka" for cell in cells)) as shared:
        for cell in cells:
            failures += not _told(cell, shared)
    print(f"{len(cells) - failures} of {len(cells)} cells hold ({time.monotonic() - started:.0f} s)")  # noqa: T201
    return 1 if failures else 0


def _told(cell: Cell, shared: Components) -> bool:
    started = time.monotonic()
    try:
        found, verdict = run_cell(cell, shared), "ok"
    except (AssertionError, LakeError) as error:
        found, verdict = f"{error}; again with --first-seed {cell.seed} --seeds 1 --only {cell}", "FAILED"
        traceback.print_exc()
    print(f"{verdict:6} {cell!s:42} {found} ({time.monotonic() - started:.1f} s)", flush=True)  # noqa: T201
    return verdict == "ok"


if __name__ == "__main__":
    sys.exit(main())
