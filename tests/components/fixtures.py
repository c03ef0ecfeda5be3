"""Fixtures of the shared components: each is started once per process of the suite, when a test first needs it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakerunner.index.database import Database
from lakerunner.pipeline.spark.session import spark_session, stop_session
from lakerunner.runtime.settings import SparkSettings
from tests.components.azurite import Azurite, running_azurite
from tests.components.kafka import KafkaBroker, kafka_jars
from tests.components.moto import CREDENTIALS, Moto, running_moto
from tests.components.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with _server_folder("pg") as folder:
        server = PostgresServer(folder)
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
def kafka_broker() -> Iterator[KafkaBroker]:
    with _server_folder("kafka") as folder:
        broker = KafkaBroker(kafka_jars(), folder)
        broker.start()
        yield broker
        broker.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole suite: starting one takes as long as a hundred small jobs."""
    # Its Python workers inherit the environment at this point, and some tests need moto's credentials.
    os.environ.update(CREDENTIALS)
    yield spark_session(SparkSettings(master="local[2]"), preload="lakerunner.pipeline.ingest.task")
    stop_session()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with running_moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    with running_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@contextmanager
def _server_folder(name: str) -> Iterator[Path]:
    # Not under pytest's own folder: other runs clean up there, and a server dies without its files.
    with tempfile.TemporaryDirectory(prefix=f"lakerunner-test-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
