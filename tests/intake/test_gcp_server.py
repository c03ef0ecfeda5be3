"""Pub/Sub's real server: notifications are redelivered until acknowledged, and are then gone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.cloud import pubsub_v1

from lakerunner.intake.gcp import PubsubSource
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import BadInput
from lakerunner.runtime.stop import Stop
from tests.components.pubsub import running_pubsub
from tests.intake import shapes
from tests.intake.conftest import Lake

_numbers = itertools.count()


@pytest.fixture(scope="session")
def pubsub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_pubsub(tmp_path_factory.mktemp("pubsub")) as address:
        yield address


@dataclass
class GcpLake:
    lake: Lake
    topic: str
    publisher: Any

    def notify(self, *attributes: dict[str, str]) -> None:
        for each in attributes:
            self.publisher.publish(self.topic, b"{}", **each).result(10)


@pytest.fixture
def gcp_lake(pubsub: str, make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch) -> Iterator[GcpLake]:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub)
    number = next(_numbers)
    topic, subscription = f"projects/p/topics/raw-{number}", f"projects/p/subscriptions/raw-{number}"
    publisher = pubsub_v1.PublisherClient()
    publisher.create_topic(name=topic)
    with pubsub_v1.SubscriberClient() as subscriber:
        subscriber.create_subscription(name=subscription, topic=topic)
    yield GcpLake(make_lake(pubsub_subscription=subscription), topic, publisher)
    publisher.stop()
    publisher.transport.close()


def receive(source: PubsubSource, count: int) -> list[Any]:
    """Pub/Sub may hand out less than it has."""
    received: list[Any] = []
    while len(received) < count:
        more = source.receive(100, 10)
        assert more
        received += more
    return received


def test_recorded_then_acknowledged(gcp_lake: GcpLake, make_recorder: Callable[[Lake], Recorder]) -> None:
    gcp_lake.notify(shapes.gcs("otel-raw/a b+ü/logs_1.json"), shapes.gcs("a", kind="OBJECT_DELETE"), {"odd": "one"})
    source = PubsubSource(gcp_lake.lake.settings)
    SourceLoop(source, make_recorder(gcp_lake.lake), 100)._handle(receive(source, 3), Stop())
    kept = {row.kind: row for row in gcp_lake.lake.rejected()}
    assert set(kept) == {"foreign", "malformed"}
    assert (kept["foreign"].bucket, kept["foreign"].key) == ("gs://lake", "otel-raw/a b+ü/logs_1.json")
    assert source.receive(100, 0.5) == []
    source.close()


def test_given_back_it_comes_again(gcp_lake: GcpLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.intake.gcp._RETRY_AFTER_S", 0)
    gcp_lake.notify(shapes.gcs("otel-raw/logs_1.json"))
    source = PubsubSource(gcp_lake.lake.settings)
    first = receive(source, 1)
    assert source.receive(100, 0.3) == []
    source.nack(first)
    again = receive(source, 1)
    assert again[0].event == first[0].event
    source.ack(again)
    assert source.receive(100, 0.3) == []
    source.close()


def test_a_subscription_that_is_not_there_is_said(gcp_lake: GcpLake) -> None:
    settings = gcp_lake.lake.settings
    intake = settings.intake.model_copy(update={"pubsub_subscription": "projects/p/subscriptions/absent"})
    source = PubsubSource(settings.model_copy(update={"intake": intake}))
    with pytest.raises(BadInput, match="cannot receive events from projects/p/subscriptions/absent"):
        source.receive(1, 5)
    source.close()
