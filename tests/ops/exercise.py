"""A minimal stage for the kill tests: it moves objects through ledger, bus, work item and commit.

`python -m tests.ops.exercise serve` is `lakerunner serve` with this stage added. Any other argument runs that role
alone.
"""

from __future__ import annotations

import os
import sys
import uuid

from lakerunner.bus import topics
from lakerunner.bus.contract import Delivery
from lakerunner.bus.messages import ObjectSeen, SegmentsMade, decode, encode
from lakerunner.bus.relay import Relay
from lakerunner.bus.role import BusRole
from lakerunner.bus.stage import run_stage
from lakerunner.index import ledger, outbox, work
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Database
from lakerunner.index.ledger import ObjectOutcome, RawObject
from lakerunner.index.outbox import Outgoing
from lakerunner.index.work import WorkItem
from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS
from lakerunner.model.time import NS_PER_S, TimeRange
from lakerunner.ops.monitor import Monitor
from lakerunner.ops.supervisor import Supervisor
from lakerunner.ops.sweeper import Sweeper
from lakerunner.runtime.crash import crash_point
from lakerunner.runtime.role import Role
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings_load import load_settings
from lakerunner.runtime.stop import Stop
from lakerunner.runtime.telemetry import configure_telemetry

ORG = uuid.UUID(int=7)
START_NS = 1_700_000_000 * NS_PER_S


def send(database: Database, names: list[str]) -> None:
    """Record objects as an intake does: ledger and outbox in one transaction."""
    objects = [RawObject(ORG, "edge", "logs", "s3://raw", name, "v1", 1) for name in names]
    with database.transaction() as tx:
        new = ledger.record_seen(tx, objects)
        outbox.put(tx, [_seen(obj) for obj in new])


def _seen(obj: RawObject) -> Outgoing:
    message = ObjectSeen(
        obj.object_id, obj.org_id, obj.collector, obj.signal, obj.bucket, obj.key, obj.version, obj.size_bytes
    )
    return Outgoing(topics.objects(LOGS).name, obj.key, encode(message))


class Exercise(BusRole):
    name = "exercise"
    sentence = "Turn each object into one segment of one row."

    def run(self, stop: Stop) -> None:
        consumer = self.bus.consumer("exercise", [topics.objects(LOGS).name])
        try:
            run_stage(consumer, self._handle, stop, max_messages=8)
        finally:
            consumer.close()

    def _handle(self, delivery: Delivery) -> None:
        seen = decode(ObjectSeen, delivery.payload)
        item_id = work.item_id("exercise", [seen.object_id])
        with self.database.transaction() as tx:
            work.create_item(tx, WorkItem(item_id, "exercise", seen.org_id, seen.signal))
            ledger.bundle(tx, [seen.object_id], item_id)
        crash_point("exercise_after_bundle")
        time_range = TimeRange(START_NS, START_NS + 1)
        segment = Segment(fresh_id(), seen.org_id, seen.collector, seen.signal, time_range, 1, 1)
        made = SegmentsMade(
            seen.org_id, seen.collector, seen.signal, segment.dateint, segment.tier_s, 0, (segment.segment_id,)
        )
        follow_up = Outgoing(topics.made(LOGS, "compact").name, seen.key, encode(made))
        commit_item(self.database, ItemResult(item_id, [segment], (), [ObjectOutcome(seen.object_id, 1)], [follow_up]))


#: The roles that the stage needs. Ingest is not among them: its own tests kill Spark.
ROLES: tuple[type[Role], ...] = (Monitor, Relay, Sweeper, Exercise)


def main() -> int:
    settings = load_settings(env=os.environ)
    if sys.argv[1] == "serve":
        configure_telemetry("serve", settings)
        launcher = (sys.executable, "-m", "tests.ops.exercise")
        return Supervisor(settings, ROLES, lambda _: None, launcher).run()
    role = next(role for role in ROLES if role.name == sys.argv[1])
    return run_role(role, settings)


if __name__ == "__main__":
    sys.exit(main())
