"""The index at scale: status, planning, commits, recovery and upkeep over millions of rows.

    python -m bench index [--objects 10000000] [--segments 1000000] [--quick]

Each case is measured at half of the rows and at all of them. The cost must not follow the table, so the peer of each
case is the same case at half of the rows. Status is also compared with counting the rows, and a commit with one that
counts nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psycopg

from lakerunner.bus.open import open_bus
from lakerunner.bus.postgres import forget_expired
from lakerunner.index import ledger, outbox, overdue, tally, work
from lakerunner.index.commit import ItemResult, commit_item
from lakerunner.index.database import Connection, Database
from lakerunner.index.ledger import ObjectState
from lakerunner.index.lookup import Want, find
from lakerunner.index.overdue import START, Overdue
from lakerunner.index.segments import ensure_partitions
from lakerunner.index.status import index_status
from lakerunner.index.upkeep import BATCH
from lakerunner.index.work import WorkItem
from lakerunner.model.ids import fresh_id
from lakerunner.model.raw_object import ObjectOutcome, RawObject
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, TimeRange, dateint
from lakerunner.runtime.settings import BusSettings, IndexSettings, Settings
from tests.components.postgres import PostgresServer

ORGS = 20
ORG = uuid.UUID(int=1)
#: Segments lie in the hours before this time, and more of them reach further back.
END_NS = 20_000 * NS_PER_DAY
_SEGMENTS_PER_HOUR = 360
TOPIC = "lakerunner.boxer.logs.compact"
_RUNS = 7
#: Rows that wait, whatever the size of the ledger.
_WAITING = 1_000
_DAY_S = 86_400.0

_ORG_OF_N = f"('00000000-0000-0000-0000-' || lpad(to_hex(1 + n % {ORGS}), 12, '0'))::uuid"
_SIGNAL_OF_N = "(ARRAY['logs', 'metrics', 'traces'])[1 + n % 3]"
#: Row n of the table of that name. The oldest is a year old, so that upkeep finds what has expired.
_ROWS = {
    "raw_object": "INSERT INTO raw_object (object_id, org_id, collector, signal, bucket, key, version, size_bytes,"
    f" state, item_id, row_count, seen_at, arrived_at, ended_at) SELECT md5('o' || n)::uuid, {_ORG_OF_N}, 'edge',"
    f" {_SIGNAL_OF_N}, 's3://raw-telemetry', 'otel-raw/year=2026/month=11/day=15/hour=21/minute=32/logs_' || n ||"
    " '.binpb.gz', md5('v' || n), 100000, CASE WHEN waits THEN 'seen' ELSE 'done' END,"
    " CASE WHEN waits THEN NULL ELSE md5('i' || n / 10)::uuid END, 1000, at, at,"
    " CASE WHEN waits THEN NULL ELSE at + interval '5 s' END",
    "work_item": "INSERT INTO work_item (item_id, stage, org_id, signal, plan, state, created_at, ended_at)"
    f" SELECT md5('i' || n)::uuid, 'ingest', {_ORG_OF_N}, {_SIGNAL_OF_N}, '{{}}',"
    " CASE WHEN waits THEN 'open' ELSE 'done' END, at, CASE WHEN waits THEN NULL ELSE at END",
    "segment": "INSERT INTO segment (segment_id, org_id, collector, signal, dateint, start_ns, end_ns, row_count,"
    f" size_bytes, tier_s, level, format_version, pruning, made_by, created_at) SELECT md5('s' || n)::uuid,"
    f" {_ORG_OF_N}, 'edge', {_SIGNAL_OF_N}, to_char(to_timestamp(start_s), 'YYYYMMDD')::int, start_s * 1000000000,"
    " (start_s + 3600) * 1000000000, 100000, 1000000, 0, 0, 1,"
    " '{\"min_max\": {}, \"values\": {}}', md5('i' || n)::uuid, at",
    "outbox": "INSERT INTO outbox (topic, key, payload, created_at, published_at)"
    " SELECT 't', 'k', 'payload', at, CASE WHEN waits THEN NULL ELSE at END",
    "bus_message": "INSERT INTO bus_message (topic, partition, at_offset, key, payload, created_at)"
    f" SELECT '{TOPIC}', n % 16, n / 16, 'k', 'payload', at",
}  # fmt: skip


def fill(connection: psycopg.Connection[object], rows: dict[str, int], waiting: int = _WAITING) -> None:
    """Put that many rows into each table, of which the last `waiting` are not done. Replaces what was there."""
    connection.execute("SET synchronous_commit = off; SET session_replication_role = replica; SET work_mem = '256MB'")
    connection.execute(f"TRUNCATE {', '.join(_ROWS)}, tally, tally_delta, ledger_horizon CASCADE")
    connection.execute("ALTER TABLE row_report DROP CONSTRAINT IF EXISTS row_report_object_id_fkey")
    for table, count in rows.items():
        # Random keys into an index that does not fit into memory take hours: the indexes are made afterwards.
        with _without_indexes(connection, table):
            connection.execute(
                f"{_ROWS[table]} FROM (SELECT n, n > {count - waiting} AS waits,"  # noqa: S608
                f" now() - interval '365 days' * (({count} - n)::float8 / {count}) - interval '10 minutes' AS at,"
                f" ({END_NS // 10**9} - 3600 - n / {_SEGMENTS_PER_HOUR} * 3600)::bigint AS start_s"
                f" FROM generate_series(1, {count}) AS n) AS rows"
            )
        connection.execute(f"ANALYZE {table}")
    for table, columns in (
        ("raw_object", "count(*), 0, 0, max(arrived_at) FILTER (WHERE state = 'done')"),
        ("work_item", "count(*), 0, 0, NULL"),
        ("segment", "count(*), sum(row_count), sum(size_bytes), NULL"),
    ):
        connection.execute(
            "INSERT INTO tally (subject, org_id, signal, state, count, row_count, size_bytes, newest_at)"  # noqa: S608
            f" SELECT '{table}', org_id, signal, state, {columns} FROM {table} GROUP BY org_id, signal, state"
        )
    connection.execute("ALTER TABLE row_report ADD FOREIGN KEY (object_id) REFERENCES raw_object ON DELETE CASCADE")
    connection.execute("SET session_replication_role = DEFAULT")


@contextmanager
def _without_indexes(connection: psycopg.Connection[object], table: str) -> Iterator[None]:
    key = connection.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'",
        [table],
    ).fetchone()
    assert isinstance(key, tuple)
    indexes = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = %s AND schemaname = 'public' AND indexname <> %s",
        [table, key[0]],
    ).fetchall()
    connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {key[0]}")
    for index in indexes:
        assert isinstance(index, tuple)
        connection.execute(f"DROP INDEX {index[0]}")
    yield
    connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT {key[0]} {key[1]}")
    for index in indexes:
        assert isinstance(index, tuple)
        connection.execute(index[1].replace(" ON ONLY ", " ON "))


class Cases:
    """Each method is one measured call, as a role makes it."""

    def __init__(self, database: Database, bus: BusSettings) -> None:
        self.database = database
        self.bus = bus
        self.number = 0

    def all(self) -> dict[str, Callable[[], object]]:
        return {
            "status": lambda: index_status(self.database),
            "plan, last hour": lambda: self.plan(END_NS - NS_PER_HOUR),
            "plan, an hour two days ago": lambda: self.plan(END_NS - 2 * NS_PER_DAY),
            "record 500 objects": lambda: self.record(500),
            "bundle and commit 10 objects, 3 segments": self.commit,
            "boxer: is ingest busy": lambda: self.within(lambda tx: work.count_open(tx, "ingest", 8)),
            "reconcile, one minute": lambda: self.reconcile(60.0),
            "reconcile, first round": lambda: self.reconcile(float("inf")),
            "fold": lambda: self.within(lambda tx: tally.fold(tx, BATCH)),
            f"forget {BATCH} raw objects": lambda: self.within(
                lambda tx: ledger.forget_ended(tx, ObjectState.DONE, 90 * _DAY_S, BATCH)
            ),
            f"forget {BATCH} work items": lambda: self.within(lambda tx: work.forget_ended(tx, 7 * _DAY_S, BATCH)),
            f"forget {BATCH} of the outbox": lambda: self.within(lambda tx: outbox.forget_published(tx, _DAY_S, BATCH)),
            f"forget {BATCH} messages of each of 16 partitions": lambda: self.within(
                lambda tx: forget_expired(tx, self.bus, BATCH)
            ),
        }

    def count_rows(self) -> None:
        """The status as it was read before there were counts."""
        with self.database.transaction() as tx:
            for table in ("raw_object", "work_item"):
                tx.execute(f"SELECT state, count(*) FROM {table} GROUP BY state").fetchall()  # noqa: S608
            tx.execute(
                "SELECT signal, state, count(*), sum(row_count), sum(size_bytes) FROM segment GROUP BY signal, state"
            ).fetchall()

    def within(self, call: Callable[[Connection], object]) -> None:
        with self.database.transaction() as tx:
            call(tx)

    def plan(self, start_ns: int) -> None:
        want = Want("logs", TimeRange(start_ns, start_ns + NS_PER_HOUR))
        assert self.database.read(lambda tx: find(tx, ORG, [want])).refs

    def objects(self, count: int) -> list[RawObject]:
        self.number += count
        return [RawObject(ORG, "edge", "logs", "s3://raw", f"new/{self.number - nth}", "v", 10) for nth in range(count)]

    def record(self, count: int) -> None:
        with self.database.transaction() as tx:
            assert len(ledger.record_seen(tx, self.objects(count))) == count

    def commit(self) -> None:
        objects = self.objects(10)
        ids = [each.object_id for each in objects]
        item_id = work.item_id("ingest", ids)
        with self.database.transaction() as tx:
            ledger.record_seen(tx, objects)
        with self.database.transaction() as tx:
            ledger.lock_seen(tx, ids)
            work.reopen_item(tx, WorkItem(item_id, "ingest", ORG, "logs"))
            ledger.bundle(tx, ids, item_id)
        made = [
            Segment(fresh_id(), ORG, "edge", "logs", TimeRange(END_NS - nth - 2, END_NS - nth), 10, 100)
            for nth in range(3)
        ]
        commit_item(self.database, ItemResult(item_id, made, (), [ObjectOutcome(each, 1) for each in ids]))

    def reconcile(self, since_s: float) -> None:
        due = Overdue(300.0, since_s)
        with self.database.transaction() as tx:
            overdue.seen_objects(tx, due, START)
            overdue.open_items(tx, "ingest", due, START)
            overdue.untaken_segments(tx, "compact", ["logs"], due, START)


def measured_ms(call: Callable[[], object], runs: int = _RUNS) -> float:
    call()
    took = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        took.append((time.perf_counter() - started) * 1000)
    # The least: on a machine that does other work as well, it is the figure that others disturb least.
    return min(took)


def report(case: str, value: float, peer: str, peer_value: float, objects: int, segments: int) -> None:
    line = {
        "bench": "index", "case": case, "value": round(value, 3), "unit": "ms", "better": "lower", "peer": peer,
        "peer_value": round(peer_value, 3), "ratio": round(value / peer_value, 3), "objects": objects,
        "segments": segments,
    }  # fmt: skip
    sys.stdout.write(orjson.dumps(line).decode() + "\n")
    sys.stdout.flush()


def rows_of(objects: int, segments: int) -> dict[str, int]:
    """How many rows of each table go with that many raw objects and segments."""
    return {
        "raw_object": objects, "work_item": objects // 10, "segment": segments, "outbox": objects // 5,
        "bus_message": objects // 5,
    }  # fmt: skip


def days_of(segments: int) -> list[int]:
    """The days over which that many segments are spread."""
    days = segments // (24 * _SEGMENTS_PER_HOUR) + 2
    return [dateint(END_NS - day * NS_PER_DAY) for day in range(days)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=10_000_000)
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="200,000 objects and 40,000 segments")
    args = parser.parse_args()
    if args.quick:
        args.objects, args.segments = 200_000, 40_000
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            measure(server.new_database(), args.objects, args.segments)
        finally:
            server.stop()
    return 0


def measure(url: str, objects: int, segments: int) -> None:
    settings = Settings(index=IndexSettings(url=url))
    database = Database(url, statement_timeout_s=600)
    bus = open_bus(settings, database)
    bus.ensure_topics()
    ensure_partitions(database, days_of(segments))
    cases = Cases(database, settings.bus)
    half: dict[str, float] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for part in (2, 1):
            fill(connection, rows_of(objects // part, segments // part))
            for case, call in cases.all().items():
                took_ms = measured_ms(call)
                if part == 2:
                    half[case] = took_ms
                    continue
                report(case, took_ms, "the same over half of the rows", half[case], objects, segments)
        counting_ms = measured_ms(cases.count_rows, runs=3)
        status_ms = measured_ms(lambda: index_status(database))
        report("status", status_ms, "counting the rows", counting_ms, objects, segments)
        counted_ms = measured_ms(cases.commit)
        for table in ("raw_object", "work_item", "segment"):
            connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        case = "bundle and commit 10 objects, 3 segments"
        report(case, counted_ms, "a commit that counts nothing", measured_ms(cases.commit), objects, segments)
    bus.close()
    database.close()


if __name__ == "__main__":
    sys.exit(main())
