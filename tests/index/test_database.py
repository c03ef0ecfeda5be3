import threading
import time
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from lakerunner.index.database import Database, Unstorable
from lakerunner.model.errors import BadInput, Bug, Conflict, LimitHit, Unavailable


def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("CREATE TABLE t (x int PRIMARY KEY)")
    with pytest.raises(ZeroDivisionError), database.transaction() as tx:
        tx.execute("INSERT INTO t VALUES (1)")
        raise ZeroDivisionError
    with database.transaction() as tx:
        assert tx.execute("SELECT * FROM t").fetchall() == []


def test_errors_are_lake_errors(database: Database) -> None:
    with database.transaction() as tx:
        tx.execute("CREATE TABLE t (x int PRIMARY KEY)")
        tx.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(Conflict), database.transaction() as tx:
        tx.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(BadInput, match="lakerunner migrate"), database.transaction() as tx:
        tx.execute("SELECT * FROM nowhere")
    with pytest.raises(Bug), database.transaction() as tx:
        tx.execute("SELECT FROM WHERE")
    for statement, value in [
        ("INSERT INTO t VALUES (%s::bigint)", 1 << 40),
        ("INSERT INTO t VALUES (%s)", None),
        ("SELECT %s::text", "a\0b"),
    ]:
        with pytest.raises(Unstorable), database.transaction() as tx:
            tx.execute(statement, [value])


def test_a_statement_that_takes_too_long_is_stopped(database: Database) -> None:
    quick = Database(database.url, statement_timeout_s=0.2)
    try:
        with pytest.raises(LimitHit, match=r"index\.statement_timeout_s"), quick.transaction() as tx:
            tx.execute("SELECT pg_sleep(5)")
    finally:
        quick.close()


@pytest.mark.parametrize(
    ("url", "kind", "says"),
    [
        ("postgresql://x@127.0.0.1:1/db", Unavailable, "is PostgreSQL running"),
        ("postgresql://x@nohost.invalid/db", BadInput, "check host and port"),
    ],
)
def test_a_wrong_address_says_what_to_check(url: str, kind: type[Exception], says: str) -> None:
    database = Database(url, connect_timeout_s=1)
    try:
        with pytest.raises(kind) as caught:
            database.ping()
    finally:
        database.close()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_database_is_named(database: Database) -> None:
    url = urlunsplit(urlsplit(database.url)._replace(path="/nosuch"))
    wrong = Database(url, connect_timeout_s=1)
    try:
        with pytest.raises(BadInput, match="create that database"):
            wrong.ping()
    finally:
        wrong.close()


def test_an_exhausted_pool_says_so(database: Database) -> None:
    small = Database(database.url, pool_size=1, connect_timeout_s=0.3)
    try:
        with small.transaction(), pytest.raises(Unavailable, match="pool_size"):
            small.ping()
    finally:
        small.close()


def test_a_lost_connection_is_replaced(database: Database) -> None:
    with database.transaction() as tx:
        row = tx.execute("SELECT pg_backend_pid() AS pid").fetchone()
    assert row is not None
    with psycopg.connect(database.url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [row["pid"]])
    database.ping()


def test_all_connections_may_be_lost_at_once(database: Database) -> None:
    """As after a restart of PostgreSQL. The pool alone would look at one dead connection per second."""
    hold = threading.Barrier(6)

    def use() -> None:
        with database.transaction():
            hold.wait(10)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with psycopg.connect(database.url, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND datname = current_database()"
        )
    with database.transaction() as tx:
        assert tx.execute("SELECT 1 AS one").fetchone() == {"one": 1}


def test_a_connection_lost_in_a_transaction_is_unavailable(database: Database) -> None:
    def cut(pid: int) -> None:
        time.sleep(0.2)
        with psycopg.connect(database.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])

    with pytest.raises(Unavailable), database.transaction() as tx:
        row = tx.execute("SELECT pg_backend_pid() AS pid").fetchone()
        assert row is not None
        threading.Thread(target=cut, args=(row["pid"],)).start()
        tx.execute("SELECT pg_sleep(10)")


def _pid(tx: psycopg.Connection[dict[str, int]]) -> int:
    row = tx.execute("SELECT pg_backend_pid() AS pid, pg_sleep(0.05)").fetchone()
    assert row is not None
    return row["pid"]


def test_a_reader_stays_at_hand_and_is_replaced_when_it_is_lost(database: Database) -> None:
    first = database.read(_pid)
    assert [database.read(_pid) for _ in range(3)] == [first] * 3
    with database.transaction() as tx:
        tx.execute("SELECT pg_terminate_backend(%s)", [first])
    assert database.read(_pid) != first


def test_a_reader_that_was_left_in_a_transaction_does_not_stay_at_hand(database: Database) -> None:
    database.read(lambda tx: tx.execute("BEGIN"))
    assert not database._at_hand
    found = database.read(lambda tx: tx.pgconn.transaction_status)
    assert found == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("pool_size", [1, 2, 4])
def test_all_who_wait_for_a_reader_get_one(database: Database, pool_size: int) -> None:
    shared = Database(database.url, pool_size=pool_size)
    pids: list[int] = []
    try:
        threads = [threading.Thread(target=lambda: pids.extend(shared.read(_pid) for _ in range(4))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(pids) == 24
        assert len(set(pids)) <= pool_size
        assert len(shared._at_hand) <= (pool_size > 1)
    finally:
        shared.close()
    assert not shared._at_hand
