"""A TCP proxy that can go silent, as a host does that loses power or network: both sides stay connected."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType

_CHUNK = 65_536
_POLL_S = 0.05

Address = tuple[str, int] | str


class SilentProxy:
    """Forwards between clients and one server until `silence`; after `resume` it goes on where it stopped.

    While it is silent, it closes nothing and the kernel goes on acknowledging packets. So neither keepalives nor the
    end of a connection tell the server that its client is gone.
    """

    def __init__(self, server: Address, port: int = 0) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._peers: dict[socket.socket, socket.socket] = {}
        self._talking, self._closing = threading.Event(), threading.Event()
        self._talking.set()
        self._idle = threading.Event()
        self._answer: bytes | None = None
        self._refused: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._run, name="silent-proxy", daemon=True)
        self._thread.start()

    def silence(self) -> None:
        """Return when nothing more will be forwarded."""
        self._idle.clear()
        self._talking.clear()
        self._idle.wait()

    def refuse(self, answer: bytes = b"") -> None:
        """Break every connection off, as a server does that is down; or answer everything with these bytes first."""
        self._answer = answer

    def resume(self) -> None:
        self._answer = None
        self._talking.set()

    def __enter__(self) -> SilentProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._talking.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready, self._listener:
            ready.register(self._listener, selectors.EVENT_READ)
            while not self._closing.is_set():
                if not self._talking.is_set():
                    self._idle.set()
                    self._talking.wait()
                for key, _ in ready.select(_POLL_S):
                    self._forward(ready, key.fileobj)
            for peer in self._peers:
                peer.close()

    def _forward(self, ready: selectors.BaseSelector, source: object) -> None:
        assert isinstance(source, socket.socket)
        if self._answer is not None or source in self._refused:
            self._refuse(ready, source, self._answer or b"")
            return
        if source is self._listener:
            client, _ = self._listener.accept()
            try:
                server = self._connect()
            except OSError:
                client.close()
                return
            self._peers |= {client: server, server: client}
            ready.register(client, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            return
        if source not in self._peers:
            return
        try:
            data = source.recv(_CHUNK)
            if data:
                self._peers[source].sendall(data)
                return
        except OSError:
            pass
        self._break_off(ready, source)

    def _refuse(self, ready: selectors.BaseSelector, source: socket.socket, answer: bytes) -> None:
        if source is self._listener:
            client, _ = self._listener.accept()
            self._refused.add(client)
            ready.register(client, selectors.EVENT_READ)
            if not answer:
                self._refuse(ready, client, answer)
        elif source in self._peers:
            self._break_off(ready, source)
        elif source in self._refused:
            self._refused.discard(source)
            ready.unregister(source)
            with contextlib.suppress(OSError):
                if answer and source.recv(_CHUNK):
                    source.sendall(answer)
            source.close()

    def _break_off(self, ready: selectors.BaseSelector, source: socket.socket) -> None:
        for end in (source, self._peers[source]):
            ready.unregister(end)
            end.close()
        del self._peers[self._peers.pop(source)]

    def _connect(self) -> socket.socket:
        if isinstance(self._server, tuple):
            return socket.create_connection(self._server)
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        return server
