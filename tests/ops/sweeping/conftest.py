"""The lake that tests of the sweeper share."""

from pathlib import Path

import pytest

from lakerunner.index.database import Database
from tests.ops.sweeping.swept_lake import SweptLake


@pytest.fixture
def lake(database: Database, database_url: str, tmp_path: Path) -> SweptLake:
    return SweptLake(database, database_url, tmp_path)
