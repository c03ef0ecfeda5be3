"""Events become one ledger row and one message each, in one transaction, and only the store is trusted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakerunner.index.ledger import ObjectState, forget_ended
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.intake.backfill import backfill
from lakerunner.intake.events import IGNORED, ObjectEvent, ParsedEvent, unreadable
from lakerunner.intake.record import Recorder
from lakerunner.intake.rejections import RejectedKind, Rejection, forget_excess, list_rejected, put_rejected
from lakerunner.model.errors import Unavailable
from lakerunner.store.bucket import ObjectMeta, version_of
from lakerunner.store.errors import Refused, StoreUnavailable
from lakerunner.store.folder import FolderBucket
from tests.components.postgres import PostgresServer
from tests.intake.conftest import ORG, Lake, write


def root(lake: Lake) -> Path:
    return Path(lake.bucket.removeprefix("file://"))


def event(lake: Lake, *keys: str) -> ParsedEvent:
    return ParsedEvent(tuple(ObjectEvent(lake.bucket, key) for key in keys))


def test_an_object_becomes_a_row_and_a_message(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "otel-raw/logs_1.json", b"12345")
    recorded = recorder.record_events([event(lake, "otel-raw/logs_1.json")], "test")
    assert +recorded.counts == {"recorded": 1}
    (row,), (message,) = lake.ledger(), lake.sent()
    assert (row["org_id"], row["collector"], row["signal"]) == (DEFAULT_ORG_ID, "default", "logs")
    assert (row["size_bytes"], row["state"], row["bucket"]) == (5, "seen", lake.bucket)
    assert (message.object_id, message.version, message.size_bytes) == (row["object_id"], row["version"], 5)


def test_three_deliveries_are_one_row(lake: Lake, recorder: Recorder) -> None:
    keys = [f"otel-raw/logs_{number}.json" for number in range(40)]
    for key in keys:
        write(root(lake), key)
    twice = [event(lake, key) for key in keys * 2]
    assert +recorder.record_events(twice, "test").counts == {"recorded": 40}
    assert +recorder.record_events(twice[:40], "test").counts == {"known": 40}
    lake.assert_each_once(keys)


def test_a_second_upload_is_another_object(lake: Lake, recorder: Recorder) -> None:
    for body in (b"one", b"two!"):
        write(root(lake), "otel-raw/logs_1.json", body)
        recorder.record_events([event(lake, "otel-raw/logs_1.json")], "test")
    assert [row["size_bytes"] for row in lake.ledger()] == [3, 4]
    assert len({row["version"] for row in lake.ledger()}) == 2


def test_whoever_is_first_records(lake: Lake, make_recorder: Callable[[Lake], Recorder]) -> None:
    keys = [f"otel-raw/logs_{number}.json" for number in range(60)]
    for key in keys:
        write(root(lake), key)
    recorders = [make_recorder(lake) for _ in range(4)]

    def work(number: int) -> None:
        ordered = keys if number % 2 else keys[::-1]
        for start in range(0, 60, 20):
            recorders[number].record_events([event(lake, key) for key in ordered[start : start + 20]], "test")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lake.assert_each_once(keys)


def test_each_fate_is_counted_and_what_was_refused_is_kept(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "otel-raw/logs_1.json")
    messages = [
        event(lake, "otel-raw/logs_1.json", "otel-raw/logs_gone.json", "otel-raw/what.json", "db/x/logs.parquet"),
        ParsedEvent((ObjectEvent("s3://elsewhere", "otel-raw/logs_1.json"),)),
        ParsedEvent((ObjectEvent("s3://elsewhere", "otel-raw/logs_2.json"),)),
        event(lake, "otel-raw//logs.json"),
        unreadable("no sense in it", b"\xff\x00"),
        IGNORED,
    ]
    recorded = recorder.record_events(messages, "test")
    assert not recorded.later
    assert +recorded.counts == {
        "recorded": 1, "gone": 1, "unmapped": 1, "ignored": 2, "foreign": 2, "unusable": 1, "malformed": 1,
    }  # fmt: skip
    kept = {row.kind: row for row in lake.rejected()}
    assert set(kept) == {"unmapped", "foreign", "unusable", "malformed"}
    assert (kept["unmapped"].bucket, kept["unmapped"].key) == (lake.bucket, "otel-raw/what.json")
    assert kept["foreign"].bucket == "s3://elsewhere"
    assert kept["malformed"].reason == "no sense in it"
    recorder.record_events(messages, "test")
    assert {row.kind: row.times for row in lake.rejected()}["malformed"] == 2


def test_what_is_mapped_later_is_no_longer_held_against_it(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "app/1.json")
    recorder.record_events([event(lake, "app/1.json")], "test")
    assert [row.kind for row in lake.rejected()] == ["unmapped"]
    lake.add_profile("app/", signal="logs")
    recorder.record_events([event(lake, "app/1.json")], "test")
    assert lake.rejected() == []
    assert [(row["org_id"], row["collector"]) for row in lake.ledger()] == [(ORG, "c1")]


def test_both_readings_of_a_key_are_looked_for(lake: Lake, recorder: Recorder) -> None:
    for key in ("otel-raw/logs a.json", "otel-raw/logs+b.json"):
        write(root(lake), key)
    both = [
        ParsedEvent((ObjectEvent(lake.bucket, "otel-raw/logs a.json", other_key="otel-raw/logs+a.json"),)),
        ParsedEvent((ObjectEvent(lake.bucket, "otel-raw/logs b.json", other_key="otel-raw/logs+b.json"),)),
        ParsedEvent((ObjectEvent(lake.bucket, "otel-raw/logs c.json", other_key="otel-raw/logs+c.json"),)),
    ]
    assert +recorder.record_events(both, "test").counts == {"recorded": 2, "gone": 1}
    lake.assert_each_once(["otel-raw/logs a.json", "otel-raw/logs+b.json"])


def test_an_org_that_the_sender_does_not_hold_is_refused(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "otel-raw/logs_1.json")
    one = [event(lake, "otel-raw/logs_1.json")]
    assert +recorder.record_events(one, "test", frozenset({ORG})).counts == {"denied": 1}
    assert lake.ledger() == []
    assert +recorder.record_events(one, "test", frozenset({DEFAULT_ORG_ID})).counts == {"recorded": 1}
    assert lake.rejected() == []


def test_a_bucket_that_does_not_answer_holds_back_only_its_own(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "otel-raw/logs_1.json")
    lake.add_profile("otel-raw/", bucket="s3://down", endpoint="https://127.0.0.1:9", region="us-east-1")
    messages = [ParsedEvent((ObjectEvent("s3://down", "otel-raw/logs_9.json"),)), event(lake, "otel-raw/logs_1.json")]
    recorded = recorder.record_events(messages, "test")
    assert isinstance(recorded.later[0], Unavailable)
    assert list(recorded.later) == [0]
    lake.assert_each_once(["otel-raw/logs_1.json"])


def test_a_profile_that_cannot_be_opened_holds_back_its_own(lake: Lake, recorder: Recorder) -> None:
    lake.add_profile("otel-raw/", bucket="s3://secret", credentials_ref="LAKERUNNER_TEST_NOT_SET")
    recorded = recorder.record_events([ParsedEvent((ObjectEvent("s3://secret", "otel-raw/logs_9.json"),))], "test")
    assert "LAKERUNNER_TEST_NOT_SET_ACCESS_KEY_ID" in str(recorded.later[0])


def test_a_refusal_of_all_holds_events_back_and_of_one_object_rejects_it(
    lake: Lake, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("otel-raw/logs_1.json", "otel-raw/logs_2.json"):
        write(root(lake), key)
    refused = {"otel-raw/logs_1.json"}
    head = FolderBucket.head

    def refuse(bucket: FolderBucket, key: str) -> ObjectMeta:
        if key in refused:
            raise Refused(f"cannot head {key!r}: Access Denied")
        return head(bucket, key)

    def refuse_all(*_: object, **__: object) -> bytes:
        raise Refused("cannot get: Access Denied")

    both = [event(lake, "otel-raw/logs_1.json"), event(lake, "otel-raw/logs_2.json")]
    monkeypatch.setattr(FolderBucket, "head", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(FolderBucket, "get_range", refuse_all)
        recorded = recorder.record_events(both[:1], "test")
        assert recorded.is_blocked and isinstance(recorded.later[0], StoreUnavailable)
        assert lake.rejected() == []
    recorder = Recorder(lake.settings, lake.database)
    recorded = recorder.record_events(both, "test")
    recorder.close()
    assert not recorded.later and +recorded.counts == {"recorded": 1, "unusable": 1}
    assert "Access Denied" in lake.rejected()[0].reason


def test_nothing_is_recorded_while_the_index_is_down(
    lake: Lake, recorder: Recorder, postgres_server: PostgresServer
) -> None:
    write(root(lake), "otel-raw/logs_1.json")
    one = [event(lake, "otel-raw/logs_1.json")]
    postgres_server.stop()
    try:
        with pytest.raises(Unavailable):
            recorder.record_events(one, "test")
    finally:
        postgres_server.start()
    assert +recorder.record_events(one, "test").counts == {"recorded": 1}


def test_the_version_is_the_same_listed_or_asked_for() -> None:
    asked = ObjectMeta("k", 1, '"0x8D"', "v1", 5)
    listed = ObjectMeta("k", 1, "0x8D", None, 5)
    assert version_of(asked) == version_of(listed) == "0x8D"
    assert version_of(ObjectMeta("k", 1, None, None, 5)) == "5-1"


def test_a_mad_sender_does_not_fill_the_index(lake: Lake) -> None:
    with lake.database.transaction() as tx:
        put_rejected(tx, [Rejection(RejectedKind.MALFORMED, "t", "r", body=str(n)) for n in range(30)])
        put_rejected(tx, [Rejection(RejectedKind.UNMAPPED, "t", "r", "b", str(n)) for n in range(30)])
        assert forget_excess(tx, keep_s=3_600, keep_rows=10, limit=100) == 40
        for kind in (RejectedKind.MALFORMED, RejectedKind.UNMAPPED):
            assert len(list_rejected(tx, kind)) == 10
        assert forget_excess(tx, keep_s=0, keep_rows=10, limit=3) == 0, "in the same transaction nothing is older"


def test_an_object_that_the_ledger_forgot_is_not_ingested_again(lake: Lake, recorder: Recorder) -> None:
    write(root(lake), "otel-raw/logs_1.json")
    again = [event(lake, "otel-raw/logs_1.json")]
    recorder.record_events(again, "test")
    with lake.database.transaction() as tx:
        tx.execute("UPDATE raw_object SET state = 'done', item_id = object_id, ended_at = now() - interval '1 hour'")
        assert forget_ended(tx, ObjectState.DONE, 60, 10) == 1
    assert +recorder.record_events(again, "test").counts == {"forgotten": 1}
    assert +backfill(recorder, lake.bucket, "otel-raw/").counts == {"forgotten": 1}
    write(root(lake), "otel-raw/logs_2.json")
    assert +backfill(recorder, lake.bucket, "otel-raw/").counts == {"forgotten": 1, "recorded": 1}
    assert lake.keys() == ["otel-raw/logs_2.json"]


def test_only_the_latest_rejections_of_a_kind_and_source_are_kept(lake: Lake) -> None:
    """Whoever may post events cannot fill the index between two rounds of upkeep, nor push out what others see."""
    with lake.database.transaction() as tx:
        put_rejected(tx, [Rejection(RejectedKind.UNMAPPED, "sqs", "r", "b", "of another source")], keep_rows=5)
    for start in range(0, 30, 10):
        with lake.database.transaction() as tx:
            posted = [Rejection(RejectedKind.UNMAPPED, "http", "r", "b", f"{n:02}") for n in range(start, start + 10)]
            put_rejected(tx, posted, keep_rows=5)
    with lake.database.transaction() as tx:
        put_rejected(tx, [Rejection(RejectedKind.UNMAPPED, "sqs", "r", "b", "of another source")], keep_rows=5)
        kept = list_rejected(tx)
    assert [(row.key, row.times) for row in kept if row.source == "sqs"] == [("of another source", 2)]
    assert len(kept) == 6 and all(row.key >= "20" for row in kept if row.source == "http")
