"""A bus of each kind over a real server."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from lakerunner.bus.contract import Bus, Consumer, Delivery, Outgoing
from lakerunner.bus.kafka import KafkaBus
from lakerunner.bus.open import open_bus
from lakerunner.index.database import Database
from lakerunner.index.role import open_database
from lakerunner.model.errors import Conflict, Unavailable
from lakerunner.runtime.settings import BusSettings, IndexSettings, Settings
from tests.components.fixtures import database, database_url, kafka_broker, postgres_server
from tests.components.kafka import KafkaBroker
from tests.components.postgres import PostgresServer
from tests.components.silent_proxy import SilentProxy

__all__ = ["database", "database_url", "kafka_broker", "postgres_server"]

TOPIC = "segments.logs.ingest"
PARTITIONS = 4


@dataclass(frozen=True)
class BusUnderTest:
    """A bus with empty topics, and the server behind it."""

    bus: Bus
    settings: Settings
    server: PostgresServer | KafkaBroker

    @contextmanager
    def consumer(self, group: str = "g", *topics: str) -> Iterator[Consumer]:
        consumer = self.bus.consumer(group, topics or (TOPIC,))
        try:
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def behind_proxy(self) -> Iterator[tuple[SilentProxy, BusUnderTest]]:
        """Yield a proxy that can go silent, and this bus through it."""
        if isinstance(self.server, KafkaBroker):
            with self.server.behind_proxy() as (proxy, brokers):
                bus = self.settings.bus.model_copy(update={"brokers": brokers})
                settings = self.settings.model_copy(update={"bus": bus})
                remote = KafkaBus(bus)
                yield proxy, BusUnderTest(remote, settings, self.server)
                remote.close()
            return
        with self.server.behind_proxy(self.settings.index.url) as (proxy, url):
            settings = self.settings.model_copy(update={"index": IndexSettings(url=url)})
            database = open_database(settings)
            yield proxy, BusUnderTest(open_bus(settings, database), settings, self.server)
            database.close()

    def publish(self, *payloads: str, key: str = "org", topic: str = TOPIC) -> None:
        self.bus.publish([Outgoing(topic, key, payload.encode()) for payload in payloads])

    def env(self) -> dict[str, str]:
        """Return the settings for a separate process."""
        bus = self.settings.bus.model_dump()
        return {
            "LAKERUNNER_INDEX_URL": self.settings.index.url,
            **{f"LAKERUNNER_BUS_{name.upper()}": str(value) for name, value in bus.items()},
        }


@pytest.fixture(params=["postgres", "kafka"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_bus(
    kind: str, request: pytest.FixtureRequest, database: Database, database_url: str
) -> Iterator[Callable[..., BusUnderTest]]:
    """Open a bus of this kind; keywords change its settings."""
    server = request.getfixturevalue("postgres_server" if kind == "postgres" else "kafka_broker")
    with ExitStack() as stack:

        def make(**changes: Any) -> BusUnderTest:
            chosen = {
                "kind": kind,
                "brokers": server.brokers if kind == "kafka" else "",
                "prefix": f"t{uuid.uuid4().hex[:8]}.",
                "partitions": PARTITIONS,
                "session_timeout_s": 1.5,
                "max_attempts": 3,
                "retry_base_s": 0.02,
                "retry_max_s": 0.1,
                **changes,
            }
            settings = Settings(bus=BusSettings(**chosen), index=IndexSettings(url=database_url))
            bus = open_bus(settings, database)
            stack.callback(bus.close)
            if isinstance(server, KafkaBroker):
                stack.callback(server.delete_topics, settings.bus.prefix)
            bus.ensure_topics()
            return BusUnderTest(bus, settings, server)

        yield make


@pytest.fixture
def under_test(make_bus: Callable[..., BusUnderTest]) -> BusUnderTest:
    return make_bus()


def receive(consumer: Consumer, count: int, timeout_s: float = 20.0) -> list[Delivery]:
    """Poll until that many came, without answering."""
    got: list[Delivery] = []
    deadline = time.monotonic() + timeout_s
    while len(got) < count and time.monotonic() < deadline:
        with suppress(Unavailable, Conflict):
            got += consumer.poll(count - len(got), 0.2)
    return got


def finish(consumer: Consumer, count: int, timeout_s: float = 20.0) -> list[str]:
    """Handle and commit that many, and return their payloads."""
    got: list[str] = []
    deadline = time.monotonic() + timeout_s
    while len(got) < count and time.monotonic() < deadline:
        with suppress(Unavailable, Conflict):
            for delivery in consumer.poll(count - len(got), 0.2):
                consumer.done(delivery)
                got.append(delivery.payload.decode())
            consumer.commit()
    return got


def nothing_comes(consumer: Consumer, within_s: float = 0.7) -> bool:
    return consumer.poll(10, within_s) == []
