"""Deletions that are due, done in a process of its own, for tests that kill it."""

from __future__ import annotations

import sys
from pathlib import Path

from lakerunner.index.database import Database
from lakerunner.runtime.settings import DataSettings, IndexSettings, Settings
from tests.pipeline.delete import deleting

if __name__ == "__main__":
    url, folder = sys.argv[1:3]
    database = Database(url)
    deleting.work_off(Settings(data=DataSettings(dir=Path(folder)), index=IndexSettings(url=url)), database)
    database.close()
