"""PostgreSQL goes away while objects wait, and comes back: all of them end, without a restart of anybody.

`LAKERUNNER_TEST_OUTAGE_S=30` makes the outage longer.
"""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from lakerunner.bus import topics
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.ingest.stage import IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.store import keys
from lakerunner.store.bucket import version_of
from tests.components.postgres import PostgresServer
from tests.faults.clean_roles import beside, boxer, ingest, relay, until
from tests.pipeline.lake import COLLECTOR, ORG, Lake, settings_of

OUTAGE_S = float(os.environ.get("LAKERUNNER_TEST_OUTAGE_S", "2"))
OBJECTS = 500

pytestmark = [pytest.mark.slow]


@pytest.mark.parametrize("bus", ["postgres", "kafka"])
def test_objects_that_wait_out_an_outage_of_the_index_all_end(
    bus: str, postgres_server: PostgresServer, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    settings = settings_of(postgres_server.new_database(), tmp_path, bundle_objects=20)
    # As by default, the attempts outlast the outage.
    changes = {"prefix": f"o{uuid.uuid4().hex[:8]}.", "max_attempts": 15, "retry_max_s": max(1.0, OUTAGE_S / 2)}
    if bus == "kafka":
        changes |= {"kind": "kafka", "brokers": request.getfixturevalue("kafka_broker").brokers}
    lake = Lake(settings.model_copy(update={"bus": settings.bus.model_copy(update=changes)}))
    try:
        lake.record([put(lake, number) for number in range(OBJECTS)])
        runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])
        with beside(relay(lake), boxer(lake), ingest(lake, runner)):
            until(lambda: lake.states().get("done", 0) > 0, "work is under way")
            postgres_server.stop()
            try:
                time.sleep(OUTAGE_S)
            finally:
                postgres_server.start()
            assert lake.states().get("done", 0) < OBJECTS, "the outage met nothing"
            until(lambda: lake.states() == {"done": OBJECTS}, "all objects end")
        assert lake.row_count(LOGS) == lake.ledger_rows(LOGS) == OBJECTS
        assert lake.topic(topics.dead(topics.work(LOGS, "ingest").name).name) == 0
    finally:
        lake.close()


def put(lake: Lake, number: int) -> RawObject:
    key = f"{keys.raw_prefix(ORG)}{COLLECTOR}/logs_{number}.json"
    meta = lake.store.put(key, b'{"time": 1763200000, "message": "m%d"}' % number)
    return RawObject(ORG, COLLECTOR, "logs", own_bucket(lake.settings), key, version_of(meta), meta.size_bytes)
