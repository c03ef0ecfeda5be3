"""One round of sweeping in a process of its own, for tests that kill it."""

from __future__ import annotations

import sys
from pathlib import Path

from lakerunner.index.database import Database
from tests.ops.sweeping.swept_lake import SweptLake

if __name__ == "__main__":
    url, folder, logs_s = sys.argv[1:4]
    from lakerunner.runtime.settings import RetentionSettings

    lake = SweptLake(Database(url), url, Path(folder))
    lake.set(RetentionSettings(logs_s=float(logs_s)), orphan_grace_s=1e-9)
    lake.sweep(listing=True)
    lake.database.close()
