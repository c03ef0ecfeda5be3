"""The canary's rows go the normal way and are found through the real API; what is lost or doubled is seen."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakerunner.index import canary_rounds
from lakerunner.index.commit import commit_item
from lakerunner.index.orgs import find_org
from lakerunner.intake.buckets import own_bucket
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import LakeError
from lakerunner.model.raw_object import RawObject
from lakerunner.model.signals import SIGNALS
from lakerunner.ops.canary.look import QueryClient
from lakerunner.ops.canary.role import COLLECTOR, Canary
from lakerunner.ops.canary.rows import SERVICE, encode
from lakerunner.pipeline.ingest.stage import IngestRunner
from lakerunner.pipeline.ingest.task import run_task
from lakerunner.query.lake import open_lake
from lakerunner.runtime.settings import CanarySettings
from lakerunner.runtime.stop import Stop
from lakerunner.serve.auth import Authenticator
from lakerunner.store.bucket import version_of
from tests.faults.clean_roles import beside, relay, until
from tests.faults.clean_roles import boxer as clean_boxer
from tests.faults.clean_roles import ingest as clean_ingest
from tests.pipeline.delete import deleting
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


def test_the_canary_sees_loss_and_doubling_through_the_real_stages(lake: Lake, api_url: str) -> None:
    """Intake, relay, boxer, ingest and deletion run beside it; nothing is done by hand but what it must notice."""
    changed = {
        "api": lake.settings.api.model_copy(update={"url": api_url}),
        "canary": CanarySettings(rows=ROWS, interval_s=1),
    }
    canary = Canary(lake.settings.model_copy(update=changed))
    runner = IngestRunner(lake.settings, lake.database, lambda tasks: [run_task(task) for task in tasks])

    def watch_folder(stop: Stop) -> None:
        recorder = Recorder(lake.settings, lake.database)
        try:
            while not stop.wait(0.2):
                listed = list(lake.store.list("otel-raw/"))
                recorder.record_listed(recorder.key_map(), own_bucket(lake.settings), listed, "test")
        finally:
            recorder.close()

    def seen() -> dict[str, canary_rounds.CanarySignal]:
        with lake.database.transaction() as tx:
            return {each.signal: each for each in canary_rounds.by_signal(tx)}

    def visible(signal: str) -> list[canary_rounds.CanaryRound]:
        with lake.database.transaction() as tx:
            return [each for each in canary_rounds.oldest_rounds(tx, 100) if each.signal == signal]

    org_id, client = canary._identify()

    def sing(stop: Stop) -> None:
        while not stop.wait(0.1):
            canary.step(org_id, client)

    stages = (relay(lake), clean_boxer(lake), clean_ingest(lake, runner), watch_folder)
    with beside(*stages, sing):
        until(lambda: all(len(visible(signal.name)) > 1 for signal in SIGNALS), "rounds of all signals are visible", 90)
        found = seen()
        assert not any(each.lost or each.doubled for each in found.values()), found
        assert all(0 < (each.delay_p50_s or 0) < 90 for each in found.values())
        again = visible("traces")[0]
        lake.store.put(again.key.replace(".binpb", "_again.binpb"), encode(again))
        until(lambda: seen()["traces"].doubled >= ROWS, "spans that were stored twice are seen", 60)
        selector = f'{{service_name="{SERVICE}"}} |= "row 1"'
        deleting.request(lake.database, org_id, "logs", selector, 0, time.time_ns())
        until(lambda: seen()["logs"].lost > 0, "rows that are gone are seen", 60)
    canary.close()
    assert seen()["metrics"].lost == seen()["metrics"].doubled == 0


def test_rounds_are_looked_at_again_at_doubling_ages(lake: Lake) -> None:
    canary = Canary(lake.settings)
    ages_s = [30, 61, 100, 130, 200, 245, 400, 481]
    try:
        with lake.database.transaction() as tx:
            for age_s in ages_s:
                each = canary_rounds.CanaryRound(1_000 - age_s, "logs", str(age_s), 1, 0, datetime.now(UTC))
                canary_rounds.put_round(tx, each)
                tx.execute(
                    "UPDATE canary_round SET visible_at = now(), written_at = now() - make_interval(secs => %s)"
                    " WHERE key = %s",
                    [age_s, str(age_s)],
                )
            again = canary._again(tx, 60.0)
            once_more = canary._again(tx, 2.0)
    finally:
        canary.close()
    # An interval is a minute: what passed 1, 2, 4 or 8 of them in the last minute, or 2 s; and the oldest three.
    assert sorted(int(each.key) for each in again) == [61, 100, 130, 245, 400, 481]
    assert sorted(int(each.key) for each in once_more) == [61, 245, 400, 481]


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
