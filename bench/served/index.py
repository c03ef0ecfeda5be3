"""The embedded index of a served lake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.migrate import migrate
from lakerunner.index.orgs import ensure_default_org
from lakerunner.model.errors import Unavailable

_START_S = 30.0


@contextmanager
def postgres(data_dir: Path) -> Iterator[tuple[Database, int]]:
    """Run the embedded index over that folder, with its schema; yield the database and the process id."""
    data_dir.mkdir(parents=True, exist_ok=True)
    server = EmbeddedPostgres(data_dir)
    process = server.spawn(data_dir / "postgres.log")
    database = Database(server.url)
    try:
        end = time.monotonic() + _START_S
        while True:
            try:
                migrate(database)
                break
            except Unavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        with database.transaction() as tx:
            ensure_default_org(tx)
        yield database, process.pid
    finally:
        database.close()
        server.stop()
        process.wait(30)
