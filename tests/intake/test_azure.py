"""Event Grid's events through a real storage queue, about real blobs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from azure.storage.queue import QueueClient

from lakerunner.intake.azure import AzureQueueSource
from lakerunner.intake.backfill import backfill
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.runtime.settings import StoreSettings
from lakerunner.runtime.stop import Stop
from tests.components.azurite import ACCOUNT, KEY, Azurite
from tests.components.azurite_queue import running_azurite_queue
from tests.intake import shapes
from tests.intake.conftest import Lake


@pytest.fixture(scope="session")
def queue_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_azurite_queue(tmp_path_factory.mktemp("azurite-queue")) as endpoint:
        yield endpoint


@dataclass
class AzureLake:
    lake: Lake
    recorder: Recorder
    queue: QueueClient

    def put(self, key: str) -> None:
        self.recorder.store(self.recorder.key_map(), self.lake.bucket).put(key, b"x")

    def send(self, *keys: str) -> None:
        container = self.lake.bucket.removeprefix("az://")
        for key in keys:
            self.queue.send_message(shapes.azure_body(shapes.azure(key, container=container)))

    def count(self) -> int:
        return self.queue.get_queue_properties().approximate_message_count


@pytest.fixture
def azure_lake(
    azurite: Azurite,
    queue_endpoint: str,
    make_lake: Callable[..., Lake],
    make_recorder: Callable[[Lake], Recorder],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[AzureLake]:
    name = f"lake-{uuid.uuid4().hex[:8]}"
    connection = f"AccountName={ACCOUNT};AccountKey={KEY};QueueEndpoint={queue_endpoint};"
    for variable, value in {
        "AZURE_STORAGE_CONNECTION_STRING": connection,
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
    }.items():
        monkeypatch.setenv(variable, value)
    azurite.create_container(name)
    store = StoreSettings(url=f"az://{name}", endpoint=azurite.endpoint, allow_http=True)
    lake = make_lake(store, azure_queue=name)
    lake.add_profile("otel-raw/")
    with QueueClient.from_connection_string(connection, name) as queue:
        queue.create_queue()
        yield AzureLake(lake, make_recorder(lake), queue)


def handle(azure_lake: AzureLake, source: AzureQueueSource, count: int) -> None:
    loop = SourceLoop(source, azure_lake.recorder, 100)
    received: list[Any] = []
    while len(received) < count:
        more = source.receive(100, 5)
        assert more
        received += more
    loop._handle(received, Stop())


def test_events_are_recorded_and_deleted(azure_lake: AzureLake) -> None:
    keys = [f"otel-raw/a b/logs_{number}+ü.json" for number in range(40)]
    for key in keys:
        azure_lake.put(key)
    azure_lake.send(*keys, keys[0])
    azure_lake.queue.send_message("rubbish!")
    source = AzureQueueSource(azure_lake.lake.settings)
    handle(azure_lake, source, 42)
    source.close()
    azure_lake.lake.assert_each_once(keys)
    assert [row.kind for row in azure_lake.lake.rejected()] == ["malformed"]
    assert azure_lake.count() == 0


def test_listing_and_event_agree(azure_lake: AzureLake) -> None:
    azure_lake.put("otel-raw/logs_1.json")
    azure_lake.send("otel-raw/logs_1.json")
    source = AzureQueueSource(azure_lake.lake.settings)
    handle(azure_lake, source, 1)
    source.close()
    assert +backfill(azure_lake.recorder, azure_lake.lake.bucket, "otel-raw/").counts == {"known": 1}


def test_events_given_back_come_again(azure_lake: AzureLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.intake.azure._RETRY_AFTER_S", 0)
    azure_lake.send("otel-raw/logs_1.json")
    source = AzureQueueSource(azure_lake.lake.settings)
    received = source.receive(10, 5)
    source.nack(received)
    again = source.receive(10, 5)
    assert [each.event for each in again] == [each.event for each in received]
    source.ack(received)  # the receipt of the first delivery is void: harmless
    assert azure_lake.count() == 1
    source.ack(again)
    assert azure_lake.count() == 0
    source.close()


def test_an_empty_queue_is_waited_on(azure_lake: AzureLake) -> None:
    source = AzureQueueSource(azure_lake.lake.settings)
    assert source.receive(10, 0.2) == []
    source.close()


def test_a_queue_that_is_not_there_is_said(azure_lake: AzureLake) -> None:
    azure_lake.queue.delete_queue()
    source = AzureQueueSource(azure_lake.lake.settings)
    with pytest.raises(BadInput, match="cannot receive events from the queue"):
        source.receive(10, 0)
    source.close()


def test_no_credential_is_said(azure_lake: AzureLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    with pytest.raises(BadInput, match="AZURE_STORAGE_CONNECTION_STRING"):
        AzureQueueSource(azure_lake.lake.settings)


def test_a_queue_that_does_not_answer_is_waited_for(azure_lake: AzureLake, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = f"AccountName={ACCOUNT};AccountKey={KEY};QueueEndpoint=http://127.0.0.1:9/{ACCOUNT};"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
    source = AzureQueueSource(azure_lake.lake.settings)
    with pytest.raises(Unavailable):
        source.receive(10, 0)
    source.close()
