"""A database that was never migrated, beside the migrated one that all suites share."""

from collections.abc import Iterator

import psycopg
import pytest

from lakerunner.index.database import Database
from tests.components.postgres import PostgresServer


@pytest.fixture
def empty_database(postgres_server: PostgresServer, database_url: str) -> Iterator[Database]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    database = Database(database_url, connect_timeout_s=2.0)
    yield database
    database.close()
