"""Statements that every query runs: prepared once per connection, and called without psycopg's conversions of types.

psycopg looks at the type of every parameter and at every value of the result, in Python. For the lookup of segments,
with twenty parameters, that takes several times as long as the call itself.
"""

from __future__ import annotations

import itertools
import uuid
import weakref
from collections.abc import Sequence
from typing import Any, LiteralString

from psycopg import OperationalError, errors, pq

from lakerunner.index.database import Connection

#: The types of parameters, as PostgreSQL numbers them.
UUID, INT, BIGINT, TEXT, INTS, BIGINTS = 2950, 23, 20, 25, 1007, 1016
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_BINARY = 1
#: What PostgreSQL answers if there is no prepared statement of the name.
_NO_STATEMENT = b"26000"
#: Connection -> the statements that it has prepared. A connection belongs to one thread at a time.
_PREPARED: weakref.WeakKeyDictionary[Connection, set[bytes]] = weakref.WeakKeyDictionary()
_NUMBERS = itertools.count()

#: A value of the result, as PostgreSQL sends it; None for NULL.
Value = bytes | None


class PreparedRead:
    """One statement, with `%s` for each parameter and the type of each. Safe to share between threads."""

    def __init__(self, text: LiteralString, types: Sequence[int], places: Sequence[int] | None = None) -> None:
        """With `places`, each `%s` is the parameter of that number: one that occurs several times is sent once."""
        pieces, numbers = text.split("%s"), range(len(types)) if places is None else places
        assert len(pieces) == len(numbers) + 1
        texts = "".join(f"{piece}${number + 1}" for piece, number in zip(pieces[:-1], numbers, strict=True))
        self._command = (texts + pieces[-1]).encode()
        self._types = types
        self._name = f"lakerunner_{next(_NUMBERS)}".encode()

    def rows(self, tx: Connection, values: Sequence[object]) -> list[list[Value]]:
        """The rows of the result. Raises psycopg's errors, as `execute` does."""
        # NULL is None, although psycopg's types do not say so.
        texts: Any = [None if value is None else _text(value) for value in values]
        connection = tx.pgconn
        if connection.transaction_status == pq.TransactionStatus.IDLE:
            result = self._executed(tx, texts)
            if result.error_field(pq.DiagnosticField.SQLSTATE) == _NO_STATEMENT:
                _PREPARED[tx].clear()
                result = self._executed(tx, texts)
        else:
            # psycopg deallocates all statements of a connection, ours too, when it rolls a transaction back. To find
            # that out would cost this transaction.
            result = connection.exec_params(self._command, texts, self._types, None, _BINARY)
        _checked(tx, result, pq.ExecStatus.TUPLES_OK)
        columns = range(result.nfields)
        return [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]

    def _executed(self, tx: Connection, texts: Any) -> pq.abc.PGresult:
        connection, prepared = tx.pgconn, _PREPARED.setdefault(tx, set())
        if self._name not in prepared:
            _checked(tx, connection.prepare(self._name, self._command, self._types), pq.ExecStatus.COMMAND_OK)
            prepared.add(self._name)
        return connection.exec_prepared(self._name, texts, None, _BINARY)


def integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def identity(value: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=value)


def _text(value: object) -> bytes:
    if isinstance(value, int):
        # No stored number is beyond: comparisons have the same result.
        return b"%d" % min(max(value, _LEAST), _MOST)
    if isinstance(value, list):
        return b"{%s}" % b",".join(map(_text, value))
    return str(value).encode()


def _checked(tx: Connection, result: Any, expected: pq.ExecStatus) -> None:
    if result.status == expected:
        return
    if tx.pgconn.status == pq.ConnStatus.BAD and not result.error_field(pq.DiagnosticField.SQLSTATE):
        # The server went without a word, as after a crash. The result alone does not say that the connection is lost.
        raise OperationalError(result.get_error_message(tx.info.encoding))
    raise errors.error_from_result(result, tx.info.encoding)
