"""The canary's rows go the normal way and are found through the real API; what is lost or doubled is seen."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.index import canary_rounds
from lakerunner.index.commit import commit_item
from lakerunner.index.orgs import find_org
from lakerunner.intake.buckets import own_bucket
from lakerunner.model.errors import LakeError
from lakerunner.model.raw_object import RawObject
from lakerunner.ops.canary.look import QueryClient
from lakerunner.ops.canary.role import COLLECTOR, Canary
from lakerunner.pipeline.ingest.stage import IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.query.lake import open_lake
from lakerunner.runtime.settings import CanarySettings
from lakerunner.serve.auth import Authenticator
from lakerunner.store.bucket import version_of
from tests.pipeline.lake import Lake, loaded, settings_of
from tests.serve.served import serving_lakes

ROWS = 4


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Iterator[Lake]:
    settings = settings_of(database_url, tmp_path)
    lake = Lake(settings.model_copy(update={"canary": CanarySettings(rows=ROWS)}))
    yield lake
    lake.close()


@pytest.fixture
def api_url(lake: Lake) -> Iterator[str]:
    opened = open_lake(lake.settings, lake.database, "test")
    with serving_lakes() as serve:
        yield serve(opened, Authenticator(lake.database, required=True)).url
    opened.close()


def ingest(lake: Lake, each: canary_rounds.CanaryRound, org_id: uuid.UUID) -> None:
    """What intake, boxer and ingest do with the round's object."""
    meta = lake.store.head(each.key)
    raw = RawObject(
        org_id, COLLECTOR, each.signal, own_bucket(lake.settings), each.key, version_of(meta), meta.size_bytes
    )
    lake.record([raw])
    runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])
    item = loaded(lake, raw)
    for attempt in runner.run([item], {item.item_id: 1}):
        assert not isinstance(attempt.result, LakeError), attempt.result
        commit_item(lake.database, attempt.result)


def test_known_rows_are_found_and_what_happens_to_them_later_is_seen(lake: Lake, api_url: str) -> None:
    canary = Canary(lake.settings.model_copy(update={"api": lake.settings.api.model_copy(update={"url": api_url})}))
    try:
        org_id, client = canary._identify()
        canary.step(org_id, client)
        with lake.database.transaction() as tx:
            written = canary_rounds.waiting_rounds(tx)
            assert find_org(tx, "canary").org_id == org_id
            assert all(not each.lost and not each.doubled for each in canary_rounds.by_signal(tx))
        assert sorted(each.signal for each in written) == ["logs", "metrics", "traces"]
        for each in written:
            ingest(lake, each, org_id)
        canary.step(org_id, client)
        with lake.database.transaction() as tx:
            assert canary_rounds.waiting_rounds(tx) == []
            assert all(each.found == each.distinct_found == ROWS for each in canary_rounds.oldest_rounds(tx, 9))
        # Its raw objects are gone.
        assert not [meta.key for each in written for meta in lake.store.list("otel-raw/") if meta.key == each.key]

        with lake.database.transaction() as tx:
            # A second live segment of the same rows, and a segment that vanished.
            tx.execute("UPDATE segment SET state = 'superseded', superseded_at = now() WHERE signal = 'logs'")
            tx.execute("UPDATE canary_round SET found = rows * 2 WHERE signal = 'traces'")
        canary._written_at_s = float("-inf")
        canary.step(org_id, client)
        with lake.database.transaction() as tx:
            seen = {each.signal: each for each in canary_rounds.by_signal(tx)}
        assert (seen["logs"].lost, seen["metrics"].lost, seen["traces"].lost) == (ROWS, 0, 0)
        # Looked at again, the spans are there once.
        assert seen["traces"].doubled == 0
    finally:
        canary.close()


def test_rows_that_are_stored_twice_are_doubled(lake: Lake, api_url: str) -> None:
    canary = Canary(lake.settings.model_copy(update={"api": lake.settings.api.model_copy(update={"url": api_url})}))
    try:
        org_id, client = canary._identify()
        canary.step(org_id, client)
        with lake.database.transaction() as tx:
            logs = next(each for each in canary_rounds.waiting_rounds(tx) if each.signal == "logs")
        ingest(lake, logs, org_id)
        copy = logs.key.replace(".binpb", "b.binpb")
        lake.store.put(copy, lake.store.get(logs.key))
        ingest(lake, canary_rounds.CanaryRound(1, "logs", copy, ROWS, logs.event_ns, logs.written_at), org_id)
        canary.step(org_id, client)
        with lake.database.transaction() as tx:
            (seen,) = (each for each in canary_rounds.by_signal(tx) if each.signal == "logs")
        assert (seen.lost, seen.doubled) == (0, ROWS)
    finally:
        canary.close()


def test_an_api_that_does_not_answer_leaves_the_rows_waiting(lake: Lake) -> None:
    canary = Canary(lake.settings)
    try:
        canary.step(uuid.uuid4(), QueryClient("http://127.0.0.1:9", "none"))
        with lake.database.transaction() as tx:
            assert len(canary_rounds.waiting_rounds(tx)) == 3
            tx.execute("UPDATE canary_round SET written_at = now() - interval '2 days'")
        canary._forget()
        with lake.database.transaction() as tx:
            assert canary_rounds.waiting_rounds(tx) == []
        assert list(lake.store.list("otel-raw/")) == []
    finally:
        canary.close()
