"""No hot statement reads a whole table: what it reads does not depend on how much was ever done."""

import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from bench.index import END_NS, ORG, days_of, fill, rows_of
from psycopg.rows import dict_row

from lakerunner.bus.open import open_bus
from lakerunner.bus.postgres import forget_expired
from lakerunner.index import leases, ledger, outbox, overdue, tally, work
from lakerunner.index.database import Connection, Database
from lakerunner.index.ledger import ObjectState
from lakerunner.index.lookup import Want, live_refs
from lakerunner.index.overdue import START, Overdue
from lakerunner.index.segments import ensure_partitions
from lakerunner.index.watermark import WATERMARK_MS, furthest_behind
from lakerunner.model.raw_object import RawObject
from lakerunner.model.time import NS_PER_HOUR, TimeRange
from lakerunner.runtime.settings import BusSettings, IndexSettings, Settings
from tests.components.postgres import PostgresServer

OBJECTS, SEGMENTS = 20_000, 6_000
#: The most rows of the large tables that one of these statements may touch.
FEW = 800
YEAR_S = 365 * 86_400.0
DUE = Overdue(300.0, 60.0)
NEW = RawObject(ORG, "edge", "logs", "s3://raw", "new", "v", 10)

STATEMENTS: dict[str, Callable[[Connection], object]] = {
    "status": lambda tx: [
        ledger.count_by_state(tx), work.count_by_state(tx), tally.count_segments(tx), outbox.backlog(tx),
        furthest_behind(tx, 100), leases.holders(tx), ledger.freshness(tx),
    ],
    "plan": lambda tx: live_refs(tx, ORG, [Want("logs", TimeRange(END_NS - NS_PER_HOUR, END_NS))]),
    "watermark": lambda tx: tx.execute(WATERMARK_MS, [ORG, "logs,metrics"]).fetchall(),
    "record": lambda tx: ledger.record_seen(tx, [NEW]),
    "lock seen": lambda tx: ledger.lock_seen(tx, [uuid.uuid4() for _ in range(100)]),
    "load an item": lambda tx: [work.load_items(tx, [uuid.uuid4()]), ledger.objects_of_items(tx, [uuid.uuid4()])],
    "is busy": lambda tx: work.count_open(tx, "ingest", 8),
    "pending": lambda tx: tx.execute(
        "SELECT outbox_id FROM outbox WHERE published_at IS NULL ORDER BY outbox_id LIMIT 10"
    ).fetchall(),
    "overdue objects": lambda tx: overdue.seen_objects(tx, DUE, START),
    "overdue items": lambda tx: overdue.open_items(tx, "ingest", DUE, START),
    "overdue segments": lambda tx: overdue.untaken_segments(tx, "compact", ["logs"], DUE, START),
    "forget objects": lambda tx: ledger.forget_ended(tx, ObjectState.DONE, YEAR_S / 2, 50),
    "forget items": lambda tx: work.forget_ended(tx, YEAR_S / 2, 50),
    "forget outbox": lambda tx: outbox.forget_published(tx, YEAR_S / 2, 50),
    "forget messages": lambda tx: forget_expired(tx, BusSettings(), 10),
}  # fmt: skip


_TOUCHED = (
    "SELECT coalesce(sum(seq_tup_read), 0)::int AS scanned, coalesce(sum(idx_tup_fetch), 0)::int AS fetched"
    " FROM pg_stat_xact_user_tables WHERE relname ~ '^(raw_object|work_item|segment|outbox|bus_message)'"
)


@pytest.fixture(scope="module")
def large_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database in which much was done long ago, and little waits."""
    url = postgres_server.new_database()
    database = Database(url)
    bus = open_bus(Settings(index=IndexSettings(url=url)), database)
    bus.ensure_topics()
    ensure_partitions(database, days_of(SEGMENTS))
    database.close()
    with psycopg.connect(url, autocommit=True) as connection:
        fill(connection, rows_of(OBJECTS, SEGMENTS), waiting=200)
    yield url
    postgres_server.drop_database(url)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_hot_statement_reads_few_rows(large_url: str, name: str) -> None:
    with psycopg.connect(large_url, row_factory=dict_row) as tx:
        STATEMENTS[name](tx)
        touched = tx.execute(_TOUCHED).fetchone()
        tx.rollback()
    assert touched is not None
    assert touched["scanned"] == 0, "a sequential scan"
    assert touched["fetched"] <= FEW


def test_reading_a_whole_table_would_be_noticed(large_url: str) -> None:
    with psycopg.connect(large_url, row_factory=dict_row) as tx:
        tx.execute("SELECT count(key) FROM raw_object")
        touched = tx.execute(_TOUCHED).fetchone()
    assert touched is not None
    assert touched["scanned"] == OBJECTS
