"""One cell of the crash matrix: objects in, a victim dies, clean roles finish, all is replayed, all is counted."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from lakerunner.bus import topics
from lakerunner.index.orgs import create_org
from lakerunner.index.outbox import Outgoing
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from lakerunner.runtime.settings import Settings
from lakerunner.store import keys
from tests.faults import clean_roles
from tests.faults.clean_roles import beside, until
from tests.faults.event_folder import EventFolder
from tests.faults.exactness import check_index, check_rows, orphans
from tests.faults.victims import EVENTS_VARIABLE, ForkedVictim, SilentVictim, SparkVictim, Victim
from tests.pipeline.lake import COLLECTOR, ORG, Lake, otlp, runner_on, settings_of

if TYPE_CHECKING:
    from tests.faults.ingest import Cell, Components

GROUPS = ("boxer-ingest", "ingest")
#: Every event comes this often.
COPIES = 3


class Trial:
    def __init__(self, cell: Cell, url: str, folder: Path, components: Components) -> None:
        self.cell = cell
        self._components = components
        self._draw = cell.draws()
        self.lake = Lake(self._settings(url, folder))
        with self.lake.database.transaction() as tx:
            create_org(tx, "acme", ORG)
        self.events = EventFolder(folder / "events")
        self.events_folder = folder / "events"
        self.sent: dict[Signal, list[bytes]] = defaultdict(list)
        self.keys: list[str] = []
        self.runner = runner_on(components.spark, self.lake)
        self._silent: SilentVictim | None = None

    def close(self) -> None:
        if self._silent is not None:
            self._silent.kill()
        self.lake.close()
        if self._components.kafka is not None and self.cell.bus == "kafka":
            self._components.kafka.delete_topics(self.lake.settings.bus.prefix)

    def run(self) -> str:
        self._put_objects()
        done_at_death = self._kill_victim()
        died_at_ns = time.time_ns()
        with beside(*self._all_roles()):
            until(self._has_ended, "a clean run ends all")
            if self._silent is not None:
                self._silent.come_back()
                died_at_ns = time.time_ns()
            rows = check_rows(self.lake, self.sent)
            self._publish_again()
            until(self._has_ended, "what was published again is done")
        self._reset_offsets()
        with beside(*self._all_roles()):
            until(self._has_ended, "what was read again is done")
        assert check_rows(self.lake, self.sent) == rows
        check_index(self.lake, self.sent)
        left = self._check_orphans(died_at_ns)
        return f"objects {len(self.keys)} done at death {done_at_death} rows {rows} orphans {left}"

    def _settings(self, url: str, folder: Path) -> Settings:
        settings = settings_of(url, folder, bundle_objects=self._draw.randint(1, 4))
        bus = {"prefix": f"f{uuid.uuid4().hex[:8]}."}
        if self.cell.bus == "kafka":
            assert self._components.kafka is not None
            bus |= {"kind": "kafka", "brokers": self._components.kafka.brokers}
        changed = {
            "bus": settings.bus.model_copy(update=bus),
            "intake": settings.intake.model_copy(update={"batch": self._draw.randint(2, 8)}),
        }
        return settings.model_copy(update=changed)

    def _put_objects(self) -> None:
        for signal in self._draw.sample(SIGNALS, self._draw.randint(1, len(SIGNALS))):
            for number in range(self._draw.randint(1, 6)):
                # A multiple of four: the sample makers give every replica the same.
                body = otlp(signal, 4 * self._draw.randint(3, 60), seed=self._draw.randrange(1 << 30))
                self.sent[signal].append(body)
                key = f"{keys.raw_prefix(ORG)}{COLLECTOR}/{signal}_{number}.binpb"
                self.lake.store.put(key, body)
                self.keys.append(key)
        self._draw.shuffle(self.keys)

    def _send_events(self, sent_keys: list[str]) -> None:
        bucket = own_bucket(self.lake.settings)
        for key in sent_keys * COPIES:
            self.events.send(bucket, key)

    def _kill_victim(self) -> int:
        """Bring the work to the victim's stage, let it die there, and return how many objects were done by then."""
        stage = self.cell.stage
        {
            "intake": self._kill_intake,
            "relay": self._kill_relay,
            "boxer": self._kill_boxer,
            "ingest": self._kill_ingest,
        }[stage]()
        return self.lake.states().get("done", 0)

    def _kill_intake(self) -> None:
        self._send_events(self.keys)
        batches = -(-len(self.keys) * COPIES // self.lake.settings.intake.batch)
        with self._victim(self._draw.randint(1, batches)) as victim:
            until(lambda: victim.died_by_itself, "intake dies")
        assert not self.events.is_empty, "something must be unacknowledged, or nothing was tested"

    def _kill_relay(self) -> None:
        """At its first passing, or at a second that comes with the second half of the objects."""
        passing = self._draw.randint(1, 2) if len(self.keys) > 1 else 1
        half = len(self.keys) // 2 if passing == 2 else 0
        with beside(clean_roles.intake(self.lake, self.events)):
            self._send_events(self.keys[:half])
            until(lambda: self.events.is_empty, "the first half is recorded")
            with self._victim(passing) as victim:
                until(lambda: self._unpublished() == 0, "the first half is relayed")
                self._send_events(self.keys[half:])
                until(lambda: victim.died_by_itself, "the relay dies")
        assert self._unpublished() > 0, "something must be unmarked, or nothing was tested"

    def _kill_boxer(self) -> None:
        per_item = self.lake.settings.pipeline.bundle_objects
        items = sum(-(-len(bodies) // per_item) for bodies in self.sent.values())
        passing = self._draw.randint(1, 12 if self.cell.point.endswith("bus_commit") else items)
        with beside(clean_roles.intake(self.lake, self.events), clean_roles.relay(self.lake)):
            self._send_events(self.keys)
            until(lambda: self._recorded() == len(self.keys), "all is recorded")
            with self._victim(passing) as victim:
                until(lambda: victim.died_by_itself, "the boxer dies")

    def _kill_ingest(self) -> None:
        """Objects are bundled cleanly; the ingest role dies over the items."""
        lake = self.lake
        with beside(clean_roles.intake(lake, self.events), clean_roles.relay(lake), clean_roles.boxer(lake)):
            self._send_events(self.keys)
            until(lambda: self._recorded() == len(self.keys) and "seen" not in lake.states(), "all is bundled")
            until(lambda: self._unpublished() == 0, "all items are on the bus")
        items = int(lake.value("SELECT count(*) FROM work_item"))
        passing = self._draw.randint(1, 16 if self.cell.point.endswith("bus_commit") else items)
        with beside(clean_roles.relay(lake)):
            if not self.cell.on_spark:
                with self._victim(passing) as victim:
                    until(lambda: victim.died_by_itself, "ingest dies")
                return
            is_task = self.cell.point in ("ingest_after_read", "ingest_after_write")
            # Passings of a task are counted by each worker of Spark for itself.
            with SparkVictim(lake, f"{self.cell.point}:{1 if is_task else passing}") as victim:
                if is_task:
                    until(lambda: victim.said("spark job failed"), "a task dies")
                    assert not victim.died_by_itself
                else:
                    until(lambda: victim.died_by_itself, "ingest dies")

    def _victim(self, passing: int) -> Victim:
        env = {EVENTS_VARIABLE: str(self.events_folder)}
        armed = f"{self.cell.crash_point}:{passing}"
        if not self.cell.is_silent:
            return ForkedVictim(self.lake, self.cell.stage, armed, **env)
        self._silent = SilentVictim(self.lake, self.cell.stage, armed, **env)
        return self._silent

    def _all_roles(self) -> list[clean_roles.Loop]:
        lake = self.lake
        return [
            clean_roles.intake(lake, self.events),
            clean_roles.relay(lake),
            clean_roles.boxer(lake),
            clean_roles.ingest(lake, self.runner),
        ]

    def _recorded(self) -> int:
        return sum(self.lake.states().values())

    def _unpublished(self) -> int:
        return int(self.lake.value("SELECT count(*) FROM outbox WHERE published_at IS NULL"))

    def _has_ended(self) -> bool:
        return (
            self.lake.states() == {"done": len(self.keys)}
            and self.events.is_empty
            and self._unpublished() == 0
            and all(lag.behind == 0 for group in GROUPS for lag in self.lake.bus.lag(group))
        )

    def _topics(self) -> list[str]:
        return [topic.name for signal in self.sent for topic in (topics.objects(signal), topics.work(signal, "ingest"))]

    def _publish_again(self) -> None:
        """The whole of every topic and all events once more."""
        for name in self._topics():
            self.lake.bus.publish([Outgoing(each.topic, each.key, each.payload) for each in self.lake.bus.read(name)])
        self._send_events(self.keys)

    def _reset_offsets(self) -> None:
        """Both groups begin anew: nobody is a member now."""
        if self.cell.bus == "postgres":
            with self.lake.database.transaction() as tx:
                tx.execute("UPDATE bus_cursor SET committed = 0, handed = 0, attempts = 0, alone = false")
            return
        bus = self.lake.settings.bus
        admin = AdminClient({"bootstrap.servers": bus.brokers})
        for group in GROUPS:
            places = [
                TopicPartition(bus.prefix + lag.topic, lag.partition, 0) for lag in self.lake.bus.lag(group)
            ]  # fmt: skip
            for future in admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values():
                future.result()

    def _check_orphans(self, died_at_ns: int) -> int:
        """Only an attempt that was killed leaves files behind, and only ingest writes any."""
        left = orphans(self.lake, self.sent)
        assert not left or self.cell.stage == "ingest", f"files that nobody names: {sorted(left)}"
        late = [key for key, written_ns in left.items() if written_ns > died_at_ns]
        assert not late, f"files that nobody names, written after the death: {late}"
        return len(left)
