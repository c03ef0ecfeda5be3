"""Open the index for a short-lived command; start the embedded PostgreSQL if it is not running."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.role import open_database
from lakerunner.model.errors import Unavailable
from lakerunner.runtime.settings import EMBEDDED, Settings

_START_TIMEOUT_S = 30.0


@contextmanager
def running_index(settings: Settings) -> Iterator[Database]:
    """Yield the index of the settings. An embedded PostgreSQL that is not running is started, then stopped again."""
    database = open_database(settings)
    try:
        if settings.index.url == EMBEDDED and EmbeddedPostgres(settings.data.dir).pid() is None:
            with _embedded_postgres(settings):
                yield database
        else:
            yield database
    finally:
        database.close()


@contextmanager
def _embedded_postgres(settings: Settings) -> Iterator[None]:
    data_dir = settings.data.dir.resolve()
    (data_dir / "logs").mkdir(parents=True, exist_ok=True)
    # The lock of `serve`: both must not start the server of one folder at the same time.
    with (data_dir / "serve.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        postgres = EmbeddedPostgres(data_dir)
        process = postgres.spawn(data_dir / "logs" / "postgres.log")
        try:
            _wait_until_ready(open_database(settings))
            yield
        finally:
            postgres.stop()
            process.wait()


def _wait_until_ready(database: Database) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    try:
        while True:
            try:
                return database.ping()
            except Unavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
    finally:
        database.close()
