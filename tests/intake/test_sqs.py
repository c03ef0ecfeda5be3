"""Real S3 events through a real queue: prefix filters, multipart uploads, odd keys, and when they are deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorder
from lakerunner.intake.sqs import SqsSource
from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.runtime.stop import Stop
from tests.components.postgres import PostgresServer
from tests.intake.conftest import S3Lake

MakeS3Lake = Callable[..., S3Lake]


@contextmanager
def running(s3_lake: S3Lake) -> Iterator[SourceLoop]:
    recorder = Recorder(s3_lake.lake.settings, s3_lake.lake.database)
    source = SqsSource(s3_lake.lake.settings)
    source.wait_s = 1.0
    loop, stop = SourceLoop(source, recorder, 100), Stop()
    thread = threading.Thread(target=loop.run, args=(stop,))
    thread.start()
    try:
        yield loop
    finally:
        stop.request()
        thread.join()
        source.close()
        recorder.close()


def is_down(loop: SourceLoop) -> bool:
    try:
        loop.probe()
    except Unavailable:
        return True
    return False


def wait_for(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_real_events_are_recorded_and_deleted(make_s3_lake: MakeS3Lake) -> None:
    s3_lake = make_s3_lake()
    s3_lake.lake.add_profile("otel-raw/")
    keys = [
        "otel-raw/year=2026/month=11/day=15/hour=21/minute=32/logs_313124979.binpb.gz",
        "otel-raw/a b+c%2Fd/metrics_ü.json",
        "otel-raw/x/traces_1.json",
    ]
    for key in keys:
        s3_lake.put(key)
    s3_lake.put("db/o/c/20261115/logs/21/tbl_1.parquet")
    with running(s3_lake):
        wait_for(lambda: s3_lake.queued() == (0, 0))
    s3_lake.lake.assert_each_once(keys)
    assert s3_lake.lake.rejected() == []


def test_a_multipart_upload_tells_of_itself_twice_and_is_one(make_s3_lake: MakeS3Lake) -> None:
    s3_lake = make_s3_lake()
    s3_lake.lake.add_profile("otel-raw/")
    place = {"Bucket": s3_lake.bucket_name, "Key": "otel-raw/logs_big.json"}
    upload = s3_lake.s3.create_multipart_upload(**place)["UploadId"]
    part = s3_lake.s3.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"x" * 1_000)
    s3_lake.s3.complete_multipart_upload(
        **place, UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    )
    with running(s3_lake):
        wait_for(lambda: s3_lake.queued() == (0, 0))
    s3_lake.lake.assert_each_once(["otel-raw/logs_big.json"])
    assert s3_lake.lake.ledger()[0]["size_bytes"] == 1_000


def test_a_prefix_filter_of_the_bucket_is_enough(make_s3_lake: MakeS3Lake) -> None:
    s3_lake = make_s3_lake(prefix="otel-raw/")
    s3_lake.lake.add_profile("otel-raw/")
    s3_lake.put("elsewhere/logs_1.json")
    s3_lake.put("otel-raw/logs_1.json")
    with running(s3_lake):
        wait_for(lambda: s3_lake.queued() == (0, 0))
    s3_lake.lake.assert_each_once(["otel-raw/logs_1.json"])
    assert s3_lake.lake.rejected() == []


def test_a_lake_may_be_a_folder_of_a_bucket(make_s3_lake: MakeS3Lake) -> None:
    s3_lake = make_s3_lake(path="/some/folder", default_org="always")
    for key in ("some/folder/otel-raw/logs_1.json", "some/folder/db/x/logs.parquet", "otel-raw/logs_2.json"):
        s3_lake.put(key)
    with running(s3_lake):
        wait_for(lambda: s3_lake.queued() == (0, 0))
    s3_lake.lake.assert_each_once(["otel-raw/logs_1.json"])
    assert [row.kind for row in s3_lake.lake.rejected()] == ["foreign"]


def test_rubbish_does_not_block_the_queue(make_s3_lake: MakeS3Lake) -> None:
    s3_lake = make_s3_lake()
    s3_lake.lake.add_profile("otel-raw/")
    for body in ("rubbish", "{}", '{"Records": [{"eventName": "ObjectCreated:Put"}]}'):
        s3_lake.sqs.send_message(QueueUrl=s3_lake.queue_url, MessageBody=body)
    s3_lake.put("otel-raw/logs_1.json")
    with running(s3_lake):
        wait_for(lambda: s3_lake.queued() == (0, 0))
    s3_lake.lake.assert_each_once(["otel-raw/logs_1.json"])
    assert sorted(row.kind for row in s3_lake.lake.rejected()) == ["malformed"] * 3


def test_an_event_of_another_bucket_reads_nothing_there(make_s3_lake: MakeS3Lake) -> None:
    s3_lake = make_s3_lake()
    s3_lake.s3.create_bucket(Bucket=s3_lake.bucket_name + "-other")
    s3_lake.s3.put_object(Bucket=s3_lake.bucket_name + "-other", Key="otel-raw/logs_1.json", Body=b"x")
    body = '{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "%s"}, "object": {"key": "a"}}}]}'
    s3_lake.sqs.send_message(QueueUrl=s3_lake.queue_url, MessageBody=body % (s3_lake.bucket_name + "-other"))
    with running(s3_lake):
        wait_for(lambda: s3_lake.queued() == (0, 0))
    assert [row.kind for row in s3_lake.lake.rejected()] == ["foreign"]
    assert s3_lake.lake.ledger() == []


def test_index_down_means_not_acknowledged_and_recovers(
    make_s3_lake: MakeS3Lake, postgres_server: PostgresServer
) -> None:
    s3_lake = make_s3_lake()
    s3_lake.lake.add_profile("otel-raw/")
    keys = [f"otel-raw/logs_{number}.json" for number in range(25)]
    for key in keys:
        s3_lake.put(key)
    with ExitStack() as outage:
        postgres_server.stop()
        outage.callback(postgres_server.start)
        with running(s3_lake) as loop:
            wait_for(lambda: s3_lake.queued()[1] > 0)
            wait_for(lambda: is_down(loop))
            assert sum(s3_lake.queued()) == 26  # with S3's test event
            outage.close()
            wait_for(lambda: s3_lake.queued() == (0, 0))
            wait_for(lambda: not is_down(loop))
    s3_lake.lake.assert_each_once(keys)


def test_events_given_back_come_again(make_s3_lake: MakeS3Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.intake.sqs._RETRY_AFTER_S", 0)
    s3_lake = make_s3_lake()
    s3_lake.put("otel-raw/logs_1.json")
    source = SqsSource(s3_lake.lake.settings)
    received = source.receive(100, 1)
    source.nack(received)
    again = source.receive(100, 1)
    assert {each.event for each in again} == {each.event for each in received}
    source.ack(again)
    assert s3_lake.queued() == (0, 0)
    source.close()


def test_a_queue_that_is_not_there_is_said(make_s3_lake: MakeS3Lake) -> None:
    s3_lake = make_s3_lake()
    s3_lake.sqs.delete_queue(QueueUrl=s3_lake.queue_url)
    source = SqsSource(s3_lake.lake.settings)
    with pytest.raises(BadInput, match="cannot receive events from the queue"):
        source.receive(10, 0)
    source.close()


def test_a_queue_that_does_not_answer_is_waited_for(make_s3_lake: MakeS3Lake) -> None:
    lake = make_s3_lake().lake
    intake = lake.settings.intake.model_copy(update={"sqs_endpoint": "http://127.0.0.1:9"})
    source = SqsSource(lake.settings.model_copy(update={"intake": intake}))
    with pytest.raises(Unavailable):
        source.receive(10, 0)
    source.close()
