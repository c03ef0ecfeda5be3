"""One Spark session for the whole suite, and a lake for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakerunner.pipeline.session import spark_session, stop_session
from lakerunner.runtime.settings import SparkSettings
from tests.components.moto import CREDENTIALS
from tests.pipeline.lake import Lake, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Its Python workers inherit the environment of now, and some tests have their bucket at moto.
    os.environ.update(CREDENTIALS)
    yield spark_session(SparkSettings(master="local[2]"))
    stop_session()


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(settings_of(database_url, tmp_path))
    yield lake
    lake.close()
