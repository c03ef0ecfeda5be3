"""Fixtures of the shared components. A suite imports the ones that it wants into its conftest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.components.kafka import KafkaBroker, kafka_jars
from tests.components.postgres import PostgresServer

from lakerunner.index.database import Database


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path_factory.mktemp("pg"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A fresh, migrated database."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, connect_timeout_s=2.0)
    yield database
    database.close()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(kafka_jars(), tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()
