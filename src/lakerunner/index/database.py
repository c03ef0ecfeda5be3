"""Connections to lrdb: a pool, transactions, and PostgreSQL's errors told as ours."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import errors as pg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from lakerunner.index.circuit import IndexCircuit
from lakerunner.model.errors import BadInput, Bug, Conflict, LakeError, LimitHit, Unavailable

Connection: TypeAlias = psycopg.Connection[DictRow]

# The pool tells every failed try to connect; we tell it once, with the reason and what to do.
logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)

#: Errors of PostgreSQL that pass by themselves: it is stopping, starting, full up, or two transactions met.
_PASSING = (
    pg.AdminShutdown,
    pg.CannotConnectNow,
    pg.CrashShutdown,
    pg.DeadlockDetected,
    pg.IdleInTransactionSessionTimeout,
    pg.LockNotAvailable,
    pg.SerializationFailure,
    pg.TooManyConnections,
)
_WRONG_CREDENTIAL = re.compile(r"authentication failed|no password supplied|role .* does not exist|no pg_hba")
_NO_DATABASE = re.compile(r"database .* does not exist")
_UNKNOWN_HOST = re.compile(r"failed to resolve|could not translate|not known|invalid port|invalid connection option")


class Database:
    """A pool of connections to one lrdb. Opening it does not connect: a database that is down is found by use.

    With `fail_fast`, those who use it while it is down do not each wait for it: for whoever can go on without.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        connect_timeout_s: float = 5.0,
        statement_timeout_s: float = 30.0,
        fail_fast: bool = False,
    ) -> None:
        self.url = url
        self._connect_timeout_s = connect_timeout_s
        self._circuit = IndexCircuit(connect_timeout_s) if fail_fast else None
        self._options: dict[str, Any] = {
            "row_factory": dict_row,
            "connect_timeout": max(1, round(connect_timeout_s)),
            "application_name": "lakerunner",
            "options": f"-c statement_timeout={round(statement_timeout_s * 1000)} -c timezone=UTC",
            # A peer that vanished without a word is noticed in about 30 s instead of two hours.
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
        }
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            kwargs=self._options,
            min_size=0,
            max_size=pool_size,
            timeout=connect_timeout_s,
            reconnect_timeout=connect_timeout_s,
            check=ConnectionPool.check_connection,
            open=False,
        )
        self._pool.open()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All of it, or none: commits when the block ends, rolls back when it raises."""
        with self._through_circuit(), _lake_errors(), self._connection() as connection, connection.transaction():
            yield connection

    @contextmanager
    def _through_circuit(self) -> Iterator[None]:
        if self._circuit is None:
            yield
            return
        self._circuit.check()
        try:
            yield
        except Unavailable as reason:
            self._circuit.failed(reason)
            raise
        self._circuit.succeeded()

    def connect(self) -> Connection:
        """A connection outside the pool, in autocommit: for locks that live as long as their holder, and LISTEN."""
        with _lake_errors():
            return psycopg.Connection[DictRow].connect(self.url, autocommit=True, **self._options)

    def ping(self) -> None:
        """Return when the database answers; raise why not otherwise."""
        with self.transaction() as tx:
            tx.execute("SELECT 1")

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            connection = self._pool.getconn(timeout=self._connect_timeout_s)
        except PoolTimeout:
            # The pool only says that it waited in vain; a connection of our own says why.
            self.connect().close()
            raise Unavailable(
                "cannot get a connection to the index: all are in use", hint="raise index.pool_size"
            ) from None
        try:
            yield connection
        finally:
            self._pool.putconn(connection)


@contextmanager
def _lake_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise to_lake_error(error) from error


def to_lake_error(error: psycopg.Error) -> LakeError:
    """PostgreSQL's error as one of ours: its class decides whether to try again."""
    text = (str(error).strip().splitlines() or ["connection lost"])[0]
    if isinstance(error, pg.DiskFull):
        return Unavailable("cannot write to the index: its disk is full", hint="free space on PostgreSQL's disk")
    if isinstance(error, _PASSING):
        return Unavailable(f"cannot use the index now: {text}")
    if isinstance(error, pg.QueryCanceled):
        return LimitHit("cannot finish a statement on the index in time", hint="raise index.statement_timeout_s")
    if isinstance(error, pg.UniqueViolation | pg.ExclusionViolation):
        return Conflict(f"cannot store that in the index: {text}")
    if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn):
        return BadInput(f"cannot use the index: {text}", hint="its schema is older; run `lakerunner migrate`")
    if isinstance(error, psycopg.OperationalError):
        return _connection_error(text)
    return Bug(f"cannot run a statement on the index: {text}")


def _connection_error(text: str) -> LakeError:
    if _WRONG_CREDENTIAL.search(text):
        return BadInput(f"cannot log in to the index: {text}", hint="check user and password in index.url")
    if _NO_DATABASE.search(text):
        return BadInput(f"cannot find the index: {text}", hint="create that database, or mend index.url")
    if _UNKNOWN_HOST.search(text):
        return BadInput(f"cannot reach the index: {text}", hint="check host and port in index.url")
    return Unavailable(
        f"cannot reach the index: {text}", hint="is PostgreSQL running? `lakerunner serve` starts an embedded one"
    )
