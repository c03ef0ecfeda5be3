"""Partitions of the index: which months have one, dropping those without rows, and whether vacuum keeps up."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.index import sweep_ledger
from lakerunner.index.database import Connection
from lakerunner.index.sweep_ledger import Entry

_NAME = re.compile(r"segment_(\d{1,6})")


@dataclass(frozen=True, slots=True)
class VacuumState:
    """What vacuum has left to do for a table."""

    table: str
    dead_rows: int
    #: Transactions since its oldest row was frozen. PostgreSQL stops writing near two billion.
    age: int


def old_partitions(tx: Connection, before_month: int) -> list[str]:
    """Partitions of months before that one, which may be empty. That of undated segments is never among them."""
    rows = tx.execute(
        "SELECT c.relname AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = 'segment'::regclass ORDER BY c.relname"
    ).fetchall()
    names = [
        row["name"] for row in rows if (match := _NAME.fullmatch(row["name"])) and 0 < int(match[1]) < before_month
    ]
    return [name for name in names if _is_empty(tx, name)]


def drop_if_empty(tx: Connection, name: str) -> bool:
    """Drop the partition unless it has a row. Waits briefly for a lock, and gives up rather than hold up queries."""
    tx.execute("SET LOCAL lock_timeout = '500ms'")
    tx.execute(f"LOCK TABLE {_quoted(name)} IN ACCESS EXCLUSIVE MODE")
    if not _is_empty(tx, name):
        return False
    tx.execute(f"DROP TABLE {_quoted(name)}")
    sweep_ledger.record(tx, [Entry("partition", "without rows", None, None, name)])
    return True


def vacuum_states(tx: Connection) -> list[VacuumState]:
    """Of all tables of the index; those with the most dead rows first."""
    rows = tx.execute(
        "SELECT s.relname AS table, s.n_dead_tup AS dead_rows, age(c.relfrozenxid)::bigint AS age"
        " FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid WHERE c.relfrozenxid <> '0'"
        " AND s.schemaname = current_schema() ORDER BY s.n_dead_tup DESC, s.relname"
    ).fetchall()
    return [VacuumState(**row) for row in rows]


def _is_empty(tx: Connection, name: str) -> bool:
    row = tx.execute(f"SELECT EXISTS (SELECT FROM {_quoted(name)}) AS filled").fetchone()  # noqa: S608
    assert row is not None
    return not row["filled"]


def _quoted(name: str) -> str:
    assert _NAME.fullmatch(name), name
    return f'"{name}"'
