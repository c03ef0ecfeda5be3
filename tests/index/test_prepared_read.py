"""Prepared statements on connections that are lost are repeated, or reported as an outage; never as a bug of ours."""

from __future__ import annotations

import os
import socket

import pytest

from lakerunner.index.database import Connection, Database
from lakerunner.index.prepared_read import INT, PreparedRead
from lakerunner.model.errors import Bug, Unavailable

TWICE = PreparedRead("SELECT 2 * %s", [INT])


def lose(tx: Connection) -> None:
    """End the connection as a server that crashes does: without a word."""
    with socket.socket(fileno=os.dup(tx.pgconn.socket)) as ours:
        ours.shutdown(socket.SHUT_RDWR)


def twice(tx: Connection, number: int = 4) -> int:
    ((value,),) = TWICE.rows(tx, [number])
    assert value is not None
    return int.from_bytes(value, "big", signed=True)


def test_a_lost_connection_is_replaced(database: Database) -> None:
    assert database.read(twice) == 8
    database.read(lose)
    assert database.read(twice) == 8


def test_a_connection_that_is_lost_each_time_is_an_outage(database: Database) -> None:
    def lost(tx: Connection) -> int:
        twice(tx)
        lose(tx)
        return twice(tx)

    with pytest.raises(Unavailable, match="cannot reach the index"):
        database.read(lost)


def test_a_wrong_statement_is_no_outage(database: Database) -> None:
    wrong = PreparedRead("SELECT FROM WHERE %s", [INT])
    with pytest.raises(Bug):
        database.read(lambda tx: wrong.rows(tx, [1]))


def deallocate(tx: Connection) -> None:
    """As psycopg does for its own statements, after a rollback."""
    tx.execute("DEALLOCATE ALL")


def test_a_statement_that_was_deallocated_is_prepared_again(database: Database) -> None:
    assert database.read(twice) == 8
    database.read(deallocate)
    assert database.read(lambda tx: twice(tx, 5)) == 10


def test_a_transaction_after_one_that_was_rolled_back_reads(database: Database) -> None:
    alone = Database(database.url, pool_size=1)
    try:
        with alone.transaction() as tx:
            assert twice(tx) == 8
            # Often enough for psycopg to prepare it.
            for _ in range(10):
                tx.execute("SELECT 1")
        with pytest.raises(ValueError, match="rolled back"), alone.transaction() as tx:
            assert twice(tx) == 8
            raise ValueError("rolled back")
        with alone.transaction() as tx:
            tx.execute("SELECT 1")
            assert twice(tx) == 8
    finally:
        alone.close()
