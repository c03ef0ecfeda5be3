"""The doctor checks everything that a deployment needs, and says how to fix what is wrong."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lakerunner.bus.open import open_bus
from lakerunner.index.database import Database
from lakerunner.index.migrate import require_current_schema
from lakerunner.model.errors import LakeError, LimitHit, Missing, Unavailable
from lakerunner.pipeline.spark.probe import probe_spark
from lakerunner.runtime.java import find_java
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.surroundings import has_user
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

MIN_FREE_BYTES = 2 * 1024**3
MAX_CLOCK_SKEW_S = 2.0
MIN_POSTGRES = 15


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    subject: str
    ok: bool
    says: str
    fix: str = ""


def examine(settings: Settings, database: Database) -> Iterator[Finding]:
    """Run the checks one after another and yield the finding of each."""
    yield _finding("user", _user)
    yield _finding("java", _java)
    yield _finding("disk", lambda: _disk(settings))
    yield _finding("postgresql", lambda: _postgresql(database))
    yield _finding("schema", lambda: _schema(database))
    yield _finding("clock", lambda: _clock(database))
    yield _finding("bus", lambda: _bus(settings, database))
    yield _finding("bucket", lambda: _bucket(settings))
    yield _finding("spark", lambda: probe_spark(settings))


def _finding(subject: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, True, check())
    except LakeError as error:
        return Finding(subject, False, error.message, error.hint or "see the logs")


def _user() -> str:
    if not has_user():
        raise Missing(
            f"cannot run PostgreSQL or Spark as user {os.geteuid()}: the system does not know that user",
            hint="install libnss-wrapper, or add the user to /etc/passwd",
        )
    return f"user {os.geteuid()}"


def _java() -> str:
    java = find_java()
    return f"Java {java.major} from {java.source} ({java.executable})"


def _disk(settings: Settings) -> str:
    folder = settings.data.dir.resolve()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise LimitHit(
            f"cannot rely on the disk: only {free / 1024**3:.1f} GiB are free at {folder}",
            hint="free some space, or point data.dir at another disk",
        )
    return f"{free / 1024**3:.1f} GiB free at {folder}"


def _postgresql(database: Database) -> str:
    with database.transaction() as tx:
        row = tx.execute("SELECT current_setting('server_version_num')::int / 10000 AS major").fetchone()
    assert row is not None
    if row["major"] < MIN_POSTGRES:
        raise LimitHit(
            f"cannot use PostgreSQL {row['major']}: it is too old", hint=f"upgrade to {MIN_POSTGRES} or newer"
        )
    return f"PostgreSQL {row['major']} answers"


def _schema(database: Database) -> str:
    require_current_schema(database)
    return "up to date with this release"


def _clock(database: Database) -> str:
    before = time.time()
    with database.transaction() as tx:
        row = tx.execute("SELECT extract(epoch FROM clock_timestamp())::float8 AS now").fetchone()
    assert row is not None
    after = time.time()
    # Without skew, the server's reading lies between our two readings.
    skew_s = max(before - row["now"], row["now"] - after, 0.0)
    if skew_s > MAX_CLOCK_SKEW_S:
        raise Unavailable(
            f"cannot trust the clocks: this machine and PostgreSQL differ by {skew_s:.1f} s", hint="run NTP on both"
        )
    return f"within {max(skew_s, after - before):.3f} s of PostgreSQL's clock"


def _bus(settings: Settings, database: Database) -> str:
    bus = open_bus(settings, database)
    try:
        bus.ping()
    finally:
        bus.close()
    return f"{settings.bus.kind} answers"


def _bucket(settings: Settings) -> str:
    store = open_store(StoreConfig.of(settings))
    key = f"doctor/{uuid.uuid4()}"
    try:
        store.put(key, b"hello")
        _require_same(store, key)
    finally:
        store.delete([key])
    return f"{settings.store_url}: put, get and delete work"


def _require_same(store: ObjectStore, key: str) -> None:
    if store.get(key) != b"hello":
        raise Unavailable(
            f"cannot read back the object {key}: its content differs", hint="check proxies and caches before the bucket"
        )
