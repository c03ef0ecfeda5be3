"""A lake on a database of its own, shared by a module: every test writes to an org that nobody else reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import LakeOfSeries, lake_of_series


@pytest.fixture(scope="module")
def lake(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeOfSeries]:
    url = postgres_server.new_database()
    with lake_of_series(tmp_path_factory.mktemp("lake"), url) as lake:
        yield lake
    postgres_server.drop_database(url)
