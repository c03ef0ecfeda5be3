"""Calls to workers of this machine over their sockets. Connections are kept; a call has one for itself.

Only evaluations go this way: they are what a small query consists of. Everything else, and every other machine, is
reached over Flight.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa

from lakerunner.query.fanout.socket_frames import (
    Frame,
    FrameReader,
    batch_of,
    error_of,
    frame,
    is_closed,
    socket_path,
)

#: Idle connections that are kept per worker. Each is a thread of the worker.
_MAX_IDLE = 16
_MAX_PATHS = 1_024


class SocketCalls:
    """The connections to workers by address. Safe to share between threads."""

    def __init__(self, data_dir: Path | None) -> None:
        """`data_dir` is where workers of this machine have their sockets; None: there are none."""
        self._data_dir = data_dir
        self._idle: dict[str, list[socket.socket]] = defaultdict(list)
        self._paths: dict[str, Path | None] = {}
        self._lock = threading.Lock()
        self._closed = False

    def connection(self, address: str) -> socket.socket | None:
        """A connection to the worker; None if it has no socket here, and Flight is the way."""
        if self._data_dir is None:
            return None
        while True:
            with self._lock:
                idle = self._idle.get(address)
                kept = idle.pop() if idle else None
            if kept is None:
                return self._connected(address)
            if not is_closed(kept):
                return kept
            kept.close()

    def give_back(self, address: str, connection: socket.socket) -> None:
        """Keep a connection whose answer was read to its end."""
        with self._lock:
            if not self._closed and len(self._idle[address]) < _MAX_IDLE:
                self._idle[address].append(connection)
                return
        connection.close()

    def forget(self, address: str) -> None:
        """Drop the idle connections to a worker that failed."""
        with self._lock:
            gone = self._idle.pop(address, [])
        for connection in gone:
            connection.close()

    def keep_only(self, addresses: Collection[str]) -> None:
        """Drop the idle connections to all other workers."""
        for address in [address for address in tuple(self._idle) if address not in addresses]:
            self.forget(address)
        if len(self._paths) > _MAX_PATHS:
            self._paths = {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self.keep_only(())

    def _connected(self, address: str) -> socket.socket | None:
        path = self._path(address)
        if path is None:
            return None
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            return None
        return connection

    def _path(self, address: str) -> Path | None:
        if address not in self._paths:
            host, _, port = address.rpartition(":")
            local = self._data_dir is not None and is_loopback(host)
            self._paths[address] = socket_path(self._data_dir, int(port)) if local and self._data_dir else None
        return self._paths[address]


class SocketCall:
    """One request under way, with a connection of its own until it ends."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self._connection = connection
        self._address = address
        self._frames = FrameReader(connection)
        self._lock = threading.Lock()
        self.ended = False

    def send(self, ticket: bytes) -> None:
        self._connection.sendall(frame(Frame.TICKET, ticket))

    def next(self) -> tuple[pa.RecordBatch | None, memoryview | None]:
        """A batch, or the note that ends the answer, or neither: a sign of life."""
        found = self._frames.next()
        if found is None:
            raise ConnectionResetError("the connection was closed")
        kind, body = found
        if kind is Frame.ERROR:
            raise error_of(body, self._address)
        return batch_of(body) if kind is Frame.BATCH else None, memoryview(body) if kind is Frame.NOTE else None

    def end(self) -> None:
        """The answer is complete: from now on, nobody may cancel the call and close a connection of another."""
        with self._lock:
            self.ended = True

    def cancel(self) -> None:
        """End the call, from any thread. The worker notices that the connection is closed."""
        with self._lock:
            if not self.ended:
                with contextlib.suppress(OSError):  # The worker may have closed it already.
                    self._connection.shutdown(socket.SHUT_RDWR)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
