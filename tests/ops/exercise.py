"""A light ingest for the kill tests: raw objects go through ledger, bus, boxer, worker and commit, without Spark.

`python -m tests.ops.exercise serve` is `lakerunner serve` with this stage in place of ingest; any other argument runs
that role alone.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lakerunner.bus.announce import announce, segments_made
from lakerunner.bus.relay import Relay
from lakerunner.index import ledger
from lakerunner.index.commit import ItemResult
from lakerunner.index.database import Database
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_S, TimeRange
from lakerunner.ops.fork_server import start_fork_server
from lakerunner.ops.monitor.role import Monitor
from lakerunner.ops.supervisor import Supervisor
from lakerunner.ops.sweeper import Sweeper
from lakerunner.pipeline.ingest.stage import INGEST
from lakerunner.pipeline.packing import PackLimits
from lakerunner.pipeline.stage import Attempt, Item, Runner
from lakerunner.pipeline.stages import boxer_role, worker_role
from lakerunner.runtime.role import Role
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.telemetry import configure_telemetry

ORG = uuid.UUID(int=7)
START_NS = 1_700_000_000 * NS_PER_S


def send(database: Database, names: list[str]) -> None:
    """Record objects as an intake does: ledger and outbox in one transaction."""
    objects = [RawObject(ORG, "edge", "logs", "s3://raw", name, "v1", 1) for name in names]
    with database.transaction() as tx:
        announce(tx, ledger.record_seen(tx, objects))


class OneRowEach(Runner[RawObject]):
    """Turns each object into one segment of one row."""

    def run(self, items: Sequence[Item[RawObject]], attempts: Mapping[uuid.UUID, int]) -> Iterator[Attempt]:
        for item in items:
            time_range = TimeRange(START_NS, START_NS + 1)
            made = [Segment(fresh_id(), item.org_id, item.collector, item.signal, time_range, 1, 1)]
            ended = [ObjectOutcome(raw.object_id, 1) for raw in item.inputs]
            yield Attempt(
                item.item_id, ItemResult(item.item_id, made=made, objects=ended, follow_ups=segments_made(made))
            )


#: One object per item, at once.
EXERCISE = replace(INGEST, runner=lambda *_: OneRowEach(), limits=lambda _: PackLimits(1, 1, 0.01, 0.01))
#: The roles that the exercise needs. Spark is not among them: it has kill tests of its own.
EXERCISED: tuple[type[Role], ...] = (Monitor, Relay, Sweeper, worker_role(EXERCISE), boxer_role(EXERCISE))

_MODULE = "tests.ops.exercise"


def main() -> int:
    settings = load_settings(env=os.environ)
    if sys.argv[1] == "serve":
        configure_telemetry("serve", settings)
        names = [role.name for role in EXERCISED]
        fork_server = start_fork_server(_MODULE, names)
        assert fork_server is not None
        try:
            return Supervisor(settings, names, lambda _: None, fork_server, _MODULE).run()
        finally:
            fork_server.close()
    role = next(role for role in EXERCISED if role.name == sys.argv[1])
    return run_role(role, settings)


if __name__ == "__main__":
    sys.exit(main())
