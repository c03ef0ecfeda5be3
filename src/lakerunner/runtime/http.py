"""An HTTP server in a thread of a role. It binds its socket at once, so that a port in use is reported at the start."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Sequence
from contextlib import ExitStack

import uvicorn
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.runtime.http_limits import LimitedHttpProtocol
from lakerunner.runtime.http_routes import routed

_START_TIMEOUT_S = 10.0
_DRAIN_TIMEOUT_S = 5
#: Requests that came just before the server stopped listening get this long, whatever else is being closed.
_LAST_ANSWERS_S = 0.5
#: Clients send nothing of size over a WebSocket; and one that reads slowly answers a ping when it comes to it.
_WS_MESSAGE_BYTES = 64 << 10
_WS_PONG_S = 120.0


class HttpServer:
    """Serves an app until closed. Running requests get a few seconds to finish."""

    def __init__(self, host: str, port: int, app: ASGIApp | Sequence[BaseRoute]) -> None:
        if not callable(app):
            app = routed(app)
        self._socket = _bind(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            http=LimitedHttpProtocol,
            ws="websockets-sansio",
            ws_max_size=_WS_MESSAGE_BYTES,
            ws_ping_timeout=_WS_PONG_S,
            loop="uvloop",
            log_config=None,
            access_log=False,
            # Nobody asks for the address or scheme that a proxy saw: one layer less around every request.
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=_DRAIN_TIMEOUT_S,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()
        pause = threading.Event()
        for _ in range(round(_START_TIMEOUT_S / 0.02)):
            if self._server.started:
                return
            pause.wait(0.02)
        raise Unavailable(
            f"cannot serve on {self.host}:{self.port}: the server did not start within {_START_TIMEOUT_S:g} s"
        )

    def stop_listening(self) -> None:
        """Accept no more requests. Those under way go on; what they need must not be closed for a moment."""
        self._server.should_exit = True
        self._thread.join(_LAST_ANSWERS_S)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(_DRAIN_TIMEOUT_S + 1)
        self._socket.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise BadInput(f"cannot bind {host!r}: it is not an address of this machine", where="http.host") from None
    # The protocol is given because asyncio otherwise leaves Nagle's delay on, and every answer waits 40 ms.
    listener = socket.socket(address[0], socket.SOCK_STREAM, address[2])
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address[4])
        listener.listen(1024)
    except OSError as reason:
        listener.close()
        if reason.errno == errno.EADDRINUSE:
            raise BadInput(
                f"cannot listen on {host}:{port}: another process uses the port",
                hint="stop that process, or set http.port",
                where="http.port",
            ) from None
        raise BadInput(f"cannot listen on {host}:{port}: {reason.strerror}", where="http.host") from None
    listener.set_inheritable(False)
    return listener


def require_free_ports(host: str, port: int, count: int) -> list[int]:
    """Return the ports from this one on, or free ones for port 0. Raises BadInput when one of them is in use."""
    with ExitStack() as held:
        # All are held until the last one is chosen: the system may give a port again that was let go.
        listeners = [held.enter_context(_bind(host, port and port + nth)) for nth in range(count)]
        return [listener.getsockname()[1] for listener in listeners]
