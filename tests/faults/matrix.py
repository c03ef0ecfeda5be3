"""The crash matrix of a stage after ingest: its cells, and the lake of a cell.

A cell is a bus, a crash point and a seed. All cells share one PostgreSQL, one Kafka and one S3 server, and each has a
database, topics and a bucket of its own, so that several may run at once. The seed draws everything else.
"""

from __future__ import annotations

import os
import random
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakerunner.bus.contract import Consumer
from lakerunner.index.outbox import Outgoing
from lakerunner.runtime.settings import StoreSettings
from tests.components.kafka import KafkaBroker, kafka_jars
from tests.components.moto import CREDENTIALS, REGION, Moto, running_moto
from tests.components.postgres import PostgresServer
from tests.pipeline.lake import Lake, settings_of

BUSES = ("postgres", "kafka")
#: Every so manyth seed has its bucket at S3 instead of in a folder.
_S3_SEEDS = 5


@dataclass(frozen=True)
class Cell:
    stage: str
    bus: str
    point: str
    seed: int

    def __str__(self) -> str:
        return f"{self.bus}/{self.stage}/{self.point}/{self.seed}"

    @property
    def at_s3(self) -> bool:
        return self.seed % _S3_SEEDS == _S3_SEEDS - 1


@dataclass(frozen=True)
class Components:
    """What all cells share."""

    postgres: PostgresServer
    kafka: KafkaBroker | None = None
    moto: Moto | None = None


@dataclass
class Trial:
    """One run of a cell, over a lake of its own. A stage derives from it and implements `run`."""

    cell: Cell
    url: str
    folder: Path
    shared: Components
    draw: random.Random = field(init=False)
    lake: Lake = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(str(self.cell))
        self.lake = self._open_lake()

    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        """Settings of the stage's cells that differ from those of small lakes, by section."""
        return {}

    def run(self) -> str:
        """Return the figures; raise what does not hold."""
        raise NotImplementedError

    def close(self) -> None:
        self.lake.close()
        if self.cell.bus == "kafka" and self.shared.kafka is not None:
            self.shared.kafka.delete_topics(self.lake.settings.bus.prefix)

    @contextmanager
    def consumer(self, group: str, names: Sequence[str]) -> Iterator[Consumer]:
        with self.lake.consumer(group, *names) as consumer:
            yield consumer

    def count(self, table_and_condition: str) -> int:
        return int(self.lake.value(f"SELECT count(*) FROM {table_and_condition}"))

    def is_idle(self, groups: Collection[str]) -> bool:
        """Whether no item is open, and no message on its way or unread."""
        return (
            self.count("work_item WHERE state = 'open'") == 0
            and self.count("outbox WHERE published_at IS NULL") == 0
            and not any(lag.behind for group in groups for lag in self.lake.bus.lag(group))
        )

    def publish_again(self, names: Collection[str]) -> None:
        """All messages of the topics once more, as a bus may deliver them."""
        for name in names:
            self.lake.bus.publish([Outgoing(each.topic, each.key, each.payload) for each in self.lake.bus.read(name)])

    def _open_lake(self) -> Lake:
        settings = settings_of(self.url, self.folder)
        bus: dict[str, object] = {"prefix": f"f{uuid.uuid4().hex[:8]}."}
        if self.cell.bus == "kafka":
            assert self.shared.kafka is not None
            bus |= {"kind": "kafka", "brokers": self.shared.kafka.brokers}
        changed: dict[str, Any] = {"bus": settings.bus.model_copy(update=bus)}
        if self.cell.at_s3:
            assert self.shared.moto is not None
            name = f"lake-{uuid.uuid4().hex[:8]}"
            self.shared.moto.create_bucket(name)
            changed["store"] = StoreSettings(
                url=f"s3://{name}", endpoint=self.shared.moto.endpoint, region=REGION, allow_http=True
            )
        for section, update in self.sections().items():
            changed[section] = changed.get(section, getattr(settings, section)).model_copy(update=update)
        return Lake(settings.model_copy(update=changed))


@dataclass(frozen=True)
class Matrix:
    """The cells of a stage: each of its points on each bus."""

    stage: str
    points: Collection[str]
    trial: type[Trial]

    def cells(self, seeds: range) -> list[Cell]:
        return [Cell(self.stage, bus, point, seed) for bus in BUSES for point in self.points for seed in seeds]

    def run_cell(self, cell: Cell, shared: Components) -> str:
        """Return the figures; raise what does not hold."""
        if cell.at_s3:
            os.environ.update(CREDENTIALS)
        url = shared.postgres.new_database()
        with tempfile.TemporaryDirectory(prefix="lakerunner-faults-", ignore_cleanup_errors=True) as folder:
            trial = self.trial(cell, url, Path(folder), shared)
            try:
                return trial.run()
            finally:
                trial.close()
                shared.postgres.drop_database(url)


@contextmanager
def components(cells: Sequence[Cell]) -> Iterator[Components]:
    """What the cells need, and no more."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakerunner-faults-", dir="/tmp")))
        folder.chmod(0o755)
        postgres = PostgresServer(folder / "pg")
        postgres.start()
        stack.callback(postgres.stop)
        # Makes the template of all databases, which several cells must not do at once.
        postgres.drop_database(postgres.new_database())
        kafka = None
        if any(cell.bus == "kafka" for cell in cells):
            kafka = KafkaBroker(kafka_jars(), folder / "kafka")
            kafka.start()
            stack.callback(kafka.stop)
        moto = stack.enter_context(running_moto(folder)) if any(cell.at_s3 for cell in cells) else None
        yield Components(postgres, kafka, moto)
