"""A session: a connection outside the pool whose locks show that its process is alive.

PostgreSQL frees the locks at once when the process dies. When the host vanishes and nobody closes the connection,
PostgreSQL frees them after `timeout_s` without a statement, so a thread sends one now and then.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from types import TracebackType

import psycopg

from lakerunner.index.database import Database, lake_errors

#: A statement is sent this often per timeout, so that some may be late.
_BEATS_PER_TIMEOUT = 4
#: How long `close` waits for a statement under way before it cuts the connection.
_CLOSE_S = 1.0


class Session:
    """The connection is in autocommit. One thread may use it beside the heartbeat; both take turns statement by
    statement.
    """

    def __init__(self, database: Database, timeout_s: float) -> None:
        self.connection = database.connect()
        self._timeout_s = timeout_s
        self._closing = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, name="session-heartbeat", daemon=True)
        with lake_errors():
            self.connection.execute(f"SET idle_session_timeout = {round(timeout_s * 1000)}")
        self._heartbeat.start()

    @property
    def is_alive(self) -> bool:
        """Whether the connection still holds its locks, as far as the last heartbeat knows."""
        return self._heartbeat.is_alive()

    def close(self) -> None:
        self._closing.set()
        self._heartbeat.join(_CLOSE_S)
        if self._heartbeat.is_alive():
            # It waits for a server that does not answer. Closing the connection under a running statement is unsafe.
            with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)
            self._heartbeat.join()
        self.connection.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _beat(self) -> None:
        # An error means that the connection is lost. Its user gets the same error from the next statement.
        with suppress(psycopg.Error):
            while not self._closing.wait(self._timeout_s / _BEATS_PER_TIMEOUT):
                self.connection.execute("SELECT 1")
