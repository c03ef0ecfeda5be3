"""The doctor checks everything that a deployment needs, and says how to fix what is wrong."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow.flight as flight

from lakerunner.bus.open import open_bus
from lakerunner.index.database import Database
from lakerunner.index.migrate import require_current_schema
from lakerunner.intake.azure import AzureQueueSource
from lakerunner.intake.gcp import PubsubSource
from lakerunner.intake.source import EventSource
from lakerunner.intake.sqs import SqsSource
from lakerunner.model.errors import Denied, LakeError, LimitHit, Missing, Unavailable
from lakerunner.pipeline.spark.probe import probe_spark
from lakerunner.query.fanout.addresses import addresses_of
from lakerunner.query.fanout.connections import Connections
from lakerunner.query.fanout.errors import from_flight
from lakerunner.query.fanout.tls import client_tls
from lakerunner.query.fanout.token import worker_token
from lakerunner.runtime.java import find_java
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.surroundings import has_user
from lakerunner.store.config import StoreConfig
from lakerunner.store.object_store import ObjectStore
from lakerunner.store.open import open_store

MIN_FREE_BYTES = 2 * 1024**3
MAX_CLOCK_SKEW_S = 2.0
MIN_POSTGRES = 15
_WORKER_S = 5.0
_SHOWN = 5


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
    yield _finding("folder", lambda: _folder(settings))
    yield _finding("postgresql", lambda: _postgresql(database))
    yield _finding("schema", lambda: _schema(database))
    yield _finding("permissions", lambda: _permissions(database))
    yield _finding("clock", lambda: _clock(database))
    yield _finding("bus", lambda: _bus(settings, database))
    yield _finding("bucket", lambda: _bucket(settings))
    yield _finding("queue", lambda: _queue(settings))
    yield _finding("spark", lambda: probe_spark(settings))
    yield _finding("workers", lambda: _workers(settings))


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


def _folder(settings: Settings) -> str:
    folder = settings.data.dir.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"hello")
    except OSError as error:
        raise Denied(
            f"cannot write to {folder} as user {os.geteuid()}: {error.strerror}",
            hint=f"run `chown {os.geteuid()} {folder}`, or set data.dir to a folder of this user",
        ) from None
    return f"{folder} can be written"


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


def _permissions(database: Database) -> str:
    """The rights that roles need. `migrate` also needs to own the tables, and says so itself."""
    with database.transaction() as tx:
        row = tx.execute(
            "SELECT current_user AS me, current_database() AS place, current_schema() AS schema, count(*) AS tables,"
            " array_agg(relname::text ORDER BY relname) FILTER (WHERE NOT (has_table_privilege(oid, 'SELECT')"
            " AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE')"
            " AND has_table_privilege(oid, 'DELETE'))) AS closed"
            " FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')"
        ).fetchone()
    assert row is not None
    if row["closed"]:
        named = ", ".join(row["closed"][:_SHOWN]) + (", …" if len(row["closed"]) > _SHOWN else "")
        raise Denied(
            f"cannot read and write {len(row['closed'])} of {row['tables']} tables of {row['place']}"
            f" as {row['me']}: {named}",
            hint=f"run `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {row['schema']} TO {row['me']}`",
        )
    return f"{row['me']} may read and write all {row['tables']} tables"


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
        before = time.time()
        store.put(key, b"hello")
        _require_same(store, key)
        written = store.head(key).modified_ns / 1e9
        # Objects are dated in whole seconds.
        skew_s = max(before - written, written - time.time()) - 1.0
        next(store.list("doctor/", limit=1))
    finally:
        store.delete([key])
    if skew_s > MAX_CLOCK_SKEW_S:
        raise Unavailable(
            f"cannot trust the clocks: this machine and the bucket differ by {skew_s:.0f} s",
            hint="run NTP on this machine: buckets refuse requests whose time is wrong",
        )
    return f"{settings.store_url}: put, get, list and delete work"


def _require_same(store: ObjectStore, key: str) -> None:
    if store.get(key) != b"hello":
        raise Unavailable(
            f"cannot read back the object {key}: its content differs", hint="check proxies and caches before the bucket"
        )


def _queue(settings: Settings) -> str:
    """Receive one event, as intake does, and give it back: it comes again seconds later."""
    intake = settings.intake
    opened: list[tuple[str, Callable[[Settings], EventSource]]] = []
    if intake.sqs_url:
        opened.append((intake.sqs_url, SqsSource))
    if intake.pubsub_subscription:
        opened.append((intake.pubsub_subscription, PubsubSource))
    if intake.azure_queue:
        opened.append((intake.azure_queue, AzureQueueSource))
    for _, open_source in opened:
        source = open_source(settings)
        try:
            if events := source.receive(1, 1.0):
                source.nack(events)
        finally:
            source.close()
    if opened:
        return f"{', '.join(name for name, _ in opened)}: events can be received and given back"
    folder = intake.folder and settings.store_url.startswith("file:")
    others = [name for name, on in (("folder", folder), ("webhook", intake.webhook)) if on]
    if intake.reconcile_interval_s:
        others.append(f"listing every {intake.reconcile_interval_s:g} s")
    if not others:
        raise Missing(
            "cannot notice new objects: no queue, no webhook, no watched folder, no listing",
            hint="set intake.sqs_url, intake.pubsub_subscription or intake.azure_queue; see docs/intake.md",
        )
    return f"none; objects are noticed by {', '.join(others)}"


def _workers(settings: Settings) -> str:
    addresses = addresses_of(settings)()
    if not addresses:
        return "none configured, and none runs here: the query API scans by itself"
    connections = Connections(worker_token(settings), client_tls(settings.query))
    try:
        for address in addresses:
            try:
                connections.ping(address, _WORKER_S)
            except flight.FlightError as error:
                raise _silent_worker(from_flight(error, address), address) from None
    finally:
        connections.close()
    return f"{', '.join(addresses)}: {'all answer' if len(addresses) > 1 else 'answers'}"


def _silent_worker(reason: LakeError, address: str) -> LakeError:
    if isinstance(reason, Denied):
        return Denied(reason.message, hint="give the query API and the workers the same query.worker_token")
    return Unavailable(
        f"cannot reach the query worker at {address}: {reason.message}",
        hint="start `lakerunner query-worker` there, open its port (query.worker_port), and use the same TLS settings; "
        "query.workers names the addresses",
    )
