"""The index for a command of a moment: the running one, or the embedded one started for just as long."""

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
def index_at_hand(settings: Settings) -> Iterator[Database]:
    """The index that the settings name. An embedded one that is not running is started, and stopped after."""
    database = open_database(settings)
    try:
        if settings.index.url == EMBEDDED and EmbeddedPostgres(settings.data.dir).pid() is None:
            with _started(settings):
                yield database
        else:
            yield database
    finally:
        database.close()


@contextmanager
def _started(settings: Settings) -> Iterator[None]:
    data_dir = settings.data.dir.resolve()
    (data_dir / "logs").mkdir(parents=True, exist_ok=True)
    # The same lock as `serve`: the two must not start one folder's server at once.
    with (data_dir / "serve.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        postgres = EmbeddedPostgres(data_dir)
        process = postgres.spawn(data_dir / "logs" / "postgres.log")
        try:
            _await(open_database(settings))
            yield
        finally:
            postgres.stop()
            process.wait()


def _await(database: Database) -> None:
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
