"""The slow lane, seen from the API: a process that is started, given requests, watched, and ended when it must be."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from lakerunner.model.errors import Unavailable
from lakerunner.runtime.memory import resident_bytes
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.telemetry import log
from lakerunner.serve.caller import Caller
from lakerunner.serve.lanes.frames import frame, read_frame
from lakerunner.serve.metrics import API_LANE_RESTARTS

_LOOK_S = 0.5
#: Past its time a query in the lane ends by itself. When it has not by then, the lane hangs.
_GRACE_S = 10.0
_RESTART = Backoff(base_s=0.2, cap_s=10.0)


class SlowLane:
    """One process at a time. While there is none, `open` is False and everything takes the fast lane."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="slow-lane", daemon=True)

    def start(self) -> None:
        if not self._keeper.is_alive():
            self._keeper.start()

    @property
    def open(self) -> bool:
        return self._port != 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        self._closing.set()
        self._end("the server stops")

    # -- requests ----------------------------------------------------------------------------------------------

    async def forward(self, scope: Scope, receive: Receive, send: Send, caller: Caller, timeout_s: float) -> bool:
        """Answer a request there. False when the lane broke before its first byte: the caller then answers."""
        begun = False
        try:
            async with asyncio.timeout(timeout_s + _GRACE_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                asking = asyncio.ensure_future(_ask(writer, receive, self._request(scope, caller)))
                try:
                    while (told := await read_frame(reader)) is not None:
                        message, body = told
                        begun = True
                        await send(_message(message, body))
                        if message["type"] == "http.response.body" and not message["more_body"]:
                            return True
                finally:
                    asking.cancel()
                    writer.close()
        except OSError:
            pass
        except TimeoutError:
            self._end("a query ran far beyond its time")
        return begun

    async def ask(self, method: str, path: str, caller: Caller) -> tuple[int, bytes]:
        """A small request of our own, and its answer; (0, b"") when there is none."""
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
        told = {
            "token": self._token,
            "method": scope["method"],
            "path": scope["path"],
            "raw_path": scope.get("raw_path", b"").decode("latin-1"),
            "query_string": scope["query_string"].decode("latin-1"),
            "headers": [pair for pair in headers if pair[0] not in ("authorization", "x-api-key")],
            "caller": {**asdict(caller), "org_id": str(caller.org_id)},
        }
        # What was read of the body by the fast lane is not there to be received again.
        known = scope.get("lakerunner.body")
        return frame({**told, "has_body": known is not None}, known or b"")

    # -- the process -------------------------------------------------------------------------------------------

    def _keep(self) -> None:
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
        """Start one and watch it until it ends. Whether it ever was ready."""
        argv = [sys.executable, "-m", "lakerunner.serve.lane_process"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            self._process = process
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                # By its standard input: an environment or an argument can be read by others.
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
                elif (held := resident_bytes(process.pid)) > self._settings.api.slow_lane_bytes:
                    self._end(f"it holds {held:,} bytes, more than api.slow_lane_bytes")
            self._port = 0
            self._process = None
            return ready

    def _end(self, reason: str) -> None:
        """End it as it is: what it worked on is lost, what others work on is not."""
        self._port = 0
        process = self._process
        if process is not None and process.poll() is None:
            log().warning("slow lane is ended", reason=reason, pid=process.pid)
            process.kill()


async def _ask(writer: asyncio.StreamWriter, receive: Receive, request: bytes) -> None:
    """Send the request, its body as it comes, and word of the client's leaving: that is the connection's end."""
    writer.write(request)
    while True:
        message = await receive()
        if message["type"] != "http.request":
            writer.close()
            return
        writer.write(frame({"more_body": message.get("more_body", False)}, message.get("body", b"")))
        await writer.drain()
        if not message.get("more_body", False) and not message.get("body", b""):
            # An app that was read to its end may go on giving empty messages.
            await asyncio.sleep(_LOOK_S)


def _message(told: dict[str, Any], body: bytes) -> dict[str, Any]:
    if told["type"] == "http.response.start":
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told["headers"]]
        return {**told, "headers": headers}
    return {**told, "body": body}


def broken() -> Unavailable:
    """What a client gets when the lane ended while it worked on the query."""
    return Unavailable(
        "cannot answer the query: it took more memory or time than one query may", hint="narrow it, or ask again"
    )
