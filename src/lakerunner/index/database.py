"""Connections to lrdb: a pool, transactions, and PostgreSQL's errors translated to LakeErrors."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from lakerunner.index.circuit import IndexCircuit
from lakerunner.model.errors import BadInput, Bug, Conflict, LakeError, LimitHit, Unavailable

Connection: TypeAlias = psycopg.Connection[DictRow]
T = TypeVar("T")

# The pool logs every failed attempt to connect; we report the failure once, with the reason and a hint.
logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)

#: Errors of PostgreSQL that a retry can solve: it is stopping, starting or full, or two transactions conflicted.
_TRANSIENT = (
    pg.AdminShutdown,
    pg.CannotConnectNow,
    pg.CrashShutdown,
    pg.DeadlockDetected,
    pg.IdleInTransactionSessionTimeout,
    pg.LockNotAvailable,
    pg.SerializationFailure,
    pg.TooManyConnections,
)
#: Errors about a value: a number out of range, a text with NUL, a row that is too large.
_UNSTORABLE = (psycopg.DataError, pg.CheckViolation, pg.NotNullViolation, pg.ProgramLimitExceeded)
#: How long a reader stays out of its pool while it is used again and again.
_AT_HAND_S = 10.0
_WRONG_CREDENTIAL = re.compile(r"authentication failed|no password supplied|role .* does not exist|no pg_hba")
_NO_DATABASE = re.compile(r"database .* does not exist")
_UNKNOWN_HOST = re.compile(r"failed to resolve|could not translate|not known|invalid port|invalid connection option")


class Unstorable(BadInput):
    """A value that the index cannot hold. The caller must change the row."""

    code = "unstorable"


class Database:
    """A pool of connections to one lrdb. Opening it does not connect; the first use does.

    With `fail_fast`, calls fail at once while the database is known to be down. For callers that can go on without it.
    When this host vanishes, PostgreSQL ends its transactions, and frees their locks, after `silence_timeout_s`.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        connect_timeout_s: float = 5.0,
        statement_timeout_s: float = 30.0,
        silence_timeout_s: float = 10.0,
        fail_fast: bool = False,
    ) -> None:
        self.url = url
        self._connect_timeout_s = connect_timeout_s
        self._circuit = IndexCircuit(connect_timeout_s) if fail_fast else None
        self._options: dict[str, Any] = {
            "row_factory": dict_row,
            "connect_timeout": max(1, round(connect_timeout_s)),
            "application_name": "lakerunner",
            "options": " ".join(
                f"-c {name}={value}"
                for name, value in {
                    "statement_timeout": round(statement_timeout_s * 1000),
                    "timezone": "UTC",
                    **_server_silence(silence_timeout_s),
                }.items()
            ),
            **_client_silence(silence_timeout_s),
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
        #: Not checked before use, and in autocommit: a read costs one round trip instead of four. Its statements are
        #: planned once: for a lookup of segments, planning takes five times as long as the rest.
        readers = {**self._options, "options": f"{self._options['options']} -c plan_cache_mode=force_generic_plan"}
        self._readers: ConnectionPool[Connection] = ConnectionPool(
            url,
            kwargs={**readers, "autocommit": True},
            min_size=0,
            max_size=pool_size,
            timeout=connect_timeout_s,
            reconnect_timeout=connect_timeout_s,
            open=False,
        )
        #: A reader that was given back, and until when it may stay: asking the pool takes longer than a small lookup.
        #: One at most, and none of a pool of one, so that those who wait for the pool get their connection.
        #: Under one key, because `setdefault` and `popitem` are atomic.
        self._at_hand: dict[None, tuple[Connection, float]] = {}
        self._keeps_reader = pool_size > 1
        self._pool.open()
        self._readers.open()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All of it, or none: commits when the block ends, rolls back when it raises."""
        with (
            self._through_circuit(),
            lake_errors(),
            self._connection(self._pool) as connection,
            connection.transaction(),
        ):
            yield connection

    def read(self, call: Callable[[Connection], T]) -> T:
        """The result of statements that only read, each of them a snapshot and a round trip of its own.

        Repeated once where an idle connection turns out to be dead, as all are after PostgreSQL was restarted.
        """
        circuit = self._circuit
        if circuit is not None:
            circuit.check()
        try:
            found = self._read(call)
        except psycopg.Error as error:
            reason = to_lake_error(error)
            if circuit is not None and isinstance(reason, Unavailable):
                circuit.failed(reason)
            raise reason from error
        except Unavailable as reason:
            if circuit is not None:
                circuit.failed(reason)
            raise
        if circuit is not None:
            circuit.succeeded()
        return found

    def _read(self, call: Callable[[Connection], T]) -> T:
        # Without context managers: each of them takes as long as three calls, and every query reads.
        try:
            _, (connection, until_s) = self._at_hand.popitem()
        except KeyError:
            connection, until_s = self._taken(self._readers), time.monotonic() + _AT_HAND_S
        try:
            return call(connection)
        except psycopg.OperationalError:
            if not connection.broken:
                raise
        finally:
            given_back = connection, until_s
            if not self._may_stay(*given_back) or self._at_hand.setdefault(None, given_back) is not given_back:
                self._readers.putconn(connection)
        self._readers.check()
        with self._connection(self._readers) as connection:
            return call(connection)

    def _may_stay(self, connection: Connection, until_s: float) -> bool:
        """Whether a reader stays at hand for the next call. The pool looks at it now and then, and may replace it."""
        return (
            self._keeps_reader
            and time.monotonic() < until_s
            and connection.pgconn.transaction_status == TransactionStatus.IDLE
        )

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
        """Open a connection outside the pool, in autocommit: for session locks and LISTEN."""
        with lake_errors():
            return psycopg.Connection[DictRow].connect(self.url, autocommit=True, **self._options)

    def ping(self) -> None:
        """Return when the database answers; raise the reason otherwise."""
        with self.transaction() as tx:
            tx.execute("SELECT 1")

    def close(self) -> None:
        self._keeps_reader = False
        while self._at_hand:
            self._readers.putconn(self._at_hand.popitem()[1][0])
        self._pool.close()
        self._readers.close()

    @contextmanager
    def _connection(self, pool: ConnectionPool[Connection]) -> Iterator[Connection]:
        connection = self._taken(pool)
        try:
            yield connection
        finally:
            pool.putconn(connection)

    def _taken(self, pool: ConnectionPool[Connection]) -> Connection:
        try:
            return pool.getconn(timeout=self._connect_timeout_s)
        except PoolTimeout:
            # The pool only reports a timeout; a separate connection attempt raises the reason.
            self.connect().close()
            return self._after_check(pool)

    def _after_check(self, pool: ConnectionPool[Connection]) -> Connection:
        """Get a connection once the dead ones are gone. By itself, the pool looks at one of them per second."""
        pool.check()
        try:
            return pool.getconn(timeout=self._connect_timeout_s)
        except PoolTimeout:
            raise Unavailable(
                "cannot get a connection to the index: all are in use", hint="raise index.pool_size"
            ) from None


def _server_silence(timeout_s: float) -> dict[str, int]:
    """Settings by which PostgreSQL gives up a client whose host vanished. By default that takes two hours.

    The first one works without TCP's help: something in between may acknowledge packets for the vanished host.
    """
    return {
        "idle_in_transaction_session_timeout": round(timeout_s * 1000),
        "tcp_user_timeout": round(timeout_s * 1000),
        **{f"tcp_{name}": value for name, value in _keepalives(timeout_s).items()},
    }


def _client_silence(timeout_s: float) -> dict[str, int]:
    """Options by which we give up a server whose host vanished."""
    return {"tcp_user_timeout": round(timeout_s * 1000), **_keepalives(timeout_s)}


def _keepalives(timeout_s: float) -> dict[str, int]:
    """Three probes without an answer, the last one about `timeout_s` after the last packet."""
    each_s = max(1, round(timeout_s / 5))
    return {"keepalives_idle": 2 * each_s, "keepalives_interval": each_s, "keepalives_count": 3}


@contextmanager
def lake_errors() -> Iterator[None]:
    """Raise PostgreSQL's errors in the block as LakeErrors."""
    try:
        yield
    except psycopg.Error as error:
        raise to_lake_error(error) from error


def to_lake_error(error: psycopg.Error) -> LakeError:
    """Translate an error of PostgreSQL to a LakeError, whose class decides about retries."""
    text = (str(error).strip().splitlines() or ["connection lost"])[0]
    if isinstance(error, pg.DiskFull):
        return Unavailable("cannot write to the index: its disk is full", hint="free space on PostgreSQL's disk")
    if isinstance(error, _TRANSIENT):
        return Unavailable(f"cannot use the index now: {text}")
    if isinstance(error, pg.QueryCanceled):
        return LimitHit(
            "cannot finish a statement on the index: it took too long", hint="raise index.statement_timeout_s"
        )
    if isinstance(error, pg.UniqueViolation | pg.ExclusionViolation):
        return Conflict(f"cannot write to the index: {text}")
    if isinstance(error, _UNSTORABLE):
        return Unstorable(f"cannot write to the index: {text}")
    if isinstance(error, pg.UndefinedTable | pg.UndefinedColumn):
        return BadInput(
            f"cannot use the index: {text}", hint="its schema may be older than this release; run `lakerunner migrate`"
        )
    if isinstance(error, psycopg.OperationalError):
        return _connection_error(text)
    return Bug(f"cannot run a statement on the index: {text}")


def _connection_error(text: str) -> LakeError:
    if _WRONG_CREDENTIAL.search(text):
        return BadInput(f"cannot log in to the index: {text}", hint="check user and password in index.url")
    if _NO_DATABASE.search(text):
        return BadInput(f"cannot find the index: {text}", hint="create that database, or correct index.url")
    if _UNKNOWN_HOST.search(text):
        return BadInput(f"cannot reach the index: {text}", hint="check host and port in index.url")
    return Unavailable(
        f"cannot reach the index: {text}", hint="is PostgreSQL running? `lakerunner serve` starts an embedded one"
    )
