"""The slow lane as the API sees it: starts, watches and kills the lane's process, and forwards requests to it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
import threading
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from lakerunner.index.api_keys import CREDENTIAL_HEADERS
from lakerunner.model.errors import Unavailable
from lakerunner.runtime.memory import resident_bytes
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.telemetry import log
from lakerunner.serve.caller import Caller
from lakerunner.serve.lanes.frames import frame, read_frame
from lakerunner.serve.metrics import API_LANE_RESTARTS

_LOOK_S = 0.5
#: A query in the lane ends by itself at its timeout. If it is still running this much later, the lane hangs.
_GRACE_S = 10.0
_RESTART = Backoff(base_s=0.2, cap_s=10.0)


class SlowLane:
    """Runs one lane process at a time. While none is ready, `open` is False and all requests take the fast lane.

    The process takes some 200 MiB and seconds of CPU time, so it is started only where there are several orgs.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._closing = threading.Event()
        self._starting = threading.Lock()
        self._watcher = threading.Thread(target=self._supervise, name="slow-lane", daemon=True)

    def start(self) -> None:
        """Start the process, unless it was started before."""
        with self._starting:
            if self._watcher.ident is None:
                self._watcher.start()

    @property
    def open(self) -> bool:
        return self._port != 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        self._closing.set()
        self._kill("the server is stopping")

    # -- requests ----------------------------------------------------------------------------------------------

    async def forward(self, scope: Scope, receive: Receive, send: Send, caller: Caller, timeout_s: float) -> bool:
        """Forward a request to the lane and send its answer.

        Returns False if the lane broke before the first byte of the answer; the caller must then answer.
        """
        answer_started = False
        try:
            async with asyncio.timeout(timeout_s + _GRACE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                sending = asyncio.ensure_future(_send_request(writer, receive, self._request(scope, caller)))
                try:
                    while (received := await read_frame(reader)) is not None:
                        message, body = received
                        answer_started = True
                        await send(_asgi_message(message, body))
                        if message["type"] == "http.response.body" and not message["more_body"]:
                            return True
                finally:
                    sending.cancel()
                    writer.close()
        except OSError:
            pass
        except TimeoutError:
            self._kill("a query ran far beyond its timeout")
        return answer_started

    async def ask(self, method: str, path: str, caller: Caller) -> tuple[int, bytes]:
        """Send a small internal request. Returns the status and body, or (0, b"") when there is no answer."""
        status, parts = 0, []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        scope = {"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}
        if self.open:
            await self.forward(scope, receive, send, caller, _GRACE_S)
        return status, b"".join(parts)

    def _request(self, scope: Scope, caller: Caller) -> bytes:
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
        head = {
            "token": self._token,
            "method": scope["method"],
            "path": scope["path"],
            "raw_path": scope.get("raw_path", b"").decode("latin-1"),
            "query_string": scope["query_string"].decode("latin-1"),
            "headers": [pair for pair in headers if pair[0] not in CREDENTIAL_HEADERS],
            "caller": caller.to_json(),
        }
        # A body that the fast lane has already read cannot be received again, so it goes with the request.
        body = scope.get("lakerunner.body")
        return frame({**head, "has_body": body is not None}, body or b"")

    # -- the process -------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        failures = 0
        while not self._closing.is_set():
            if self._run():
                failures = 0
            else:
                failures += 1
            if not self._closing.is_set():
                API_LANE_RESTARTS.inc()
                self._closing.wait(_RESTART.ceiling_s(failures + 1))

    def _run(self) -> bool:
        """Start a process and watch it until it exits. Returns whether it ever became ready."""
        argv = [sys.executable, "-m", "lakerunner.serve.lane_process"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self._process = process
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                # Over standard input: other users can read a process's arguments, and sometimes its environment.
                head = {"token": self._token, "settings": self._settings.model_dump(mode="json")}
                process.stdin.write(orjson.dumps(head) + b"\n")
                process.stdin.flush()
            port = process.stdout.readline().strip()
            ready = port.isdigit()
            if ready and not self._closing.is_set():
                self._port = int(port)
                log().info("slow lane is open", pid=process.pid)
            while process.poll() is None:
                if self._closing.wait(_LOOK_S):
                    process.kill()
                elif (resident := resident_bytes(process.pid)) > self._settings.api.slow_lane_bytes:
                    self._kill(f"it holds {resident:,} bytes, more than api.slow_lane_bytes")
            self._port = 0
            self._process = None
            return ready

    def _kill(self, reason: str) -> None:
        """Kill the process. The lane's queries are lost; those of the fast lane are not affected."""
        self._port = 0
        process = self._process
        if process is not None and process.poll() is None:
            log().warning("slow lane is killed", reason=reason, pid=process.pid)
            process.kill()


async def _send_request(writer: asyncio.StreamWriter, receive: Receive, request: bytes) -> None:
    """Send the request and its body as it arrives. Closes the connection when the client disconnects."""
    writer.write(request)
    while True:
        message = await receive()
        if message["type"] != "http.request":
            writer.close()
            return
        writer.write(frame({"more_body": message.get("more_body", False)}, message.get("body", b"")))
        await writer.drain()
        if not message.get("more_body", False) and not message.get("body", b""):
            # After the end of the body, some servers keep returning empty messages.
            await asyncio.sleep(_LOOK_S)


def _asgi_message(message: dict[str, Any], body: bytes) -> dict[str, Any]:
    if message["type"] == "http.response.start":
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in message["headers"]]
        return {**message, "headers": headers}
    return {**message, "body": body}


def broken() -> Unavailable:
    """The error for a client whose query was running when the lane's process ended."""
    return Unavailable(
        "cannot answer the query: it took more memory or time than a query may",
        hint="narrow the query, or try again",
    )
