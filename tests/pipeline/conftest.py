"""A lake for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.lake import Lake, settings_of


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(settings_of(database_url, tmp_path))
    yield lake
    lake.close()
