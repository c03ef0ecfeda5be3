"""A worker's socket for clients of the same machine: one thread per connection, which evaluates and answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial
from pathlib import Path

from lakerunner.model.errors import BadInput, LakeError
from lakerunner.query.fanout.protocol import EvaluateRequest
from lakerunner.query.fanout.socket_frames import MAX_TICKET_BYTES, Frame, FrameReader, FrameWriter, is_closed
from lakerunner.query.worker.requests import Requests

_BACKLOG = 64
#: A client that finds no free connection asks over Flight.
_MAX_CONNECTIONS = 256
#: How long to wait for a request under way when the server closes.
_END_S = 5.0


class SocketServer:
    """Listens from the start on, until it is closed."""

    def __init__(self, path: Path, requests: Requests) -> None:
        self._path = path
        self._requests = requests
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        # A worker that was killed leaves its file, and its port is ours now.
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(path))
        path.chmod(0o600)
        self._listening.listen(_BACKLOG)
        self._accepting = threading.Thread(target=self._accept, name="socket-accept", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End all connections. Requests under way end at their next check, as their clients are told."""
        with self._lock:
            self._closed = True
            connections = dict(self._connections)
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        for thread in connections.values():
            thread.join(_END_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                if self._closed:
                    return
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="socket", daemon=True)
            with self._lock:
                if self._closed or len(self._connections) >= _MAX_CONNECTIONS:
                    connection.close()
                    continue
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameReader(connection)
        try:
            while (found := frames.next(MAX_TICKET_BYTES)) is not None:
                kind, body = found
                if kind is not Frame.TICKET:
                    return
                self._answer(connection, bytes(body))
        except (OSError, BadInput):
            return  # The client is gone, or it is none of ours.
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()

    def _answer(self, connection: socket.socket, ticket: bytes) -> None:
        answer = FrameWriter(connection)
        try:
            request = self._requests.request(ticket)
            if not isinstance(request, EvaluateRequest):
                raise BadInput("cannot scan over a socket: it is for evaluations")
            for part in self._requests.evaluated(request, partial(is_closed, connection)):
                if part is None:
                    answer.alive()
                elif isinstance(part, bytes):
                    answer.note(part)
                else:
                    answer.batch(part)
                    if not request.small:
                        answer.flush()
        except LakeError as error:
            answer.error(error)
