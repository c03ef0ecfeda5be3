"""`python -m lakerunner.serve.lane_process`: the slow lane's process, an API reachable only through the parent API.

The process reads its settings from standard input and prints its loopback port on standard output. It exits when its
input closes, which means that the parent has exited. It runs at a lower priority than the parent. Without configured
workers it scans segments itself, so that this machine's worker stays free for the fast lane.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette

from lakerunner.index.org_requests import RequestLedger
from lakerunner.index.role import open_database
from lakerunner.query.lake import open_lake
from lakerunner.runtime.kernels import load_kernels
from lakerunner.runtime.settings import Settings
from lakerunner.runtime.telemetry import configure_telemetry
from lakerunner.runtime.thread_switch import switch_threads_often
from lakerunner.serve.api import Api
from lakerunner.serve.app import api_routes
from lakerunner.serve.auth import CALLER, Authenticator
from lakerunner.serve.caller import Caller
from lakerunner.serve.kernels import api_kernels
from lakerunner.serve.lanes.frames import PIECE_BYTES, frame, read_frame

NAME = "query-slow"
#: The lowest priority: ten threads at this level still weigh less than one normal thread.
_NICE = 19
#: Priority of the whole session, where the weights of threads do not add up: a tenth of a normal session's share.
_SESSION_NICE = 10


class Connection:
    """One request: the `receive` and `send` of an ASGI app over a stream.

    Several tasks may wait in `receive` for the disconnect at the same time.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._body: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._body_complete = False
        self._disconnected = asyncio.Event()

    async def serve(self, app: Starlette, token: str) -> None:
        reading = None
        try:
            first = await read_frame(self._reader)
            if first is None or not hmac.compare_digest(str(first[0].get("token")), token):
                return
            request, body = first
            if request["has_body"]:
                self._body.put_nowait({"type": "http.request", "body": body, "more_body": False})
            reading = asyncio.ensure_future(self._read())
            await app(_scope(request), self.receive, self.send)
        except ConnectionError:
            return
        finally:
            if reading is not None:
                reading.cancel()
            self._writer.close()

    async def _read(self) -> None:
        while (received := await read_frame(self._reader)) is not None:
            message, body = received
            self._body.put_nowait({"type": "http.request", "body": body, "more_body": message["more_body"]})
        self._disconnected.set()

    async def receive(self) -> dict[str, Any]:
        if not self._body_complete:
            message = await self._body.get()
            self._body_complete = not message["more_body"]
            return message
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in message["headers"]]
            self._writer.write(frame({"type": message["type"], "status": message["status"], "headers": headers}))
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for start in range(0, max(1, len(body)), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            last = start + PIECE_BYTES >= len(body) and not more
            self._writer.write(frame({"type": message["type"], "more_body": not last}, piece))
            await self._writer.drain()


def _scope(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "server": None,
        "client": None,
        "root_path": "",
        "method": request["method"],
        "path": request["path"],
        "raw_path": request["raw_path"].encode("latin-1"),
        "query_string": request["query_string"].encode("latin-1"),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request["headers"]],
        CALLER: Caller.from_json(request["caller"]),
    }


def main() -> int:
    give_way()
    head = orjson.loads(sys.stdin.buffer.readline())
    settings = Settings.model_validate(head["settings"])
    configure_telemetry(NAME, settings)
    threading.Thread(target=_end_with_input, name="api-watch", daemon=True).start()
    switch_threads_often()
    database = open_database(settings)
    RequestLedger(database).start()
    # Without configured workers this process scans segments itself and leaves this machine's worker to the fast lane.
    lake = open_lake(settings, database, own_scans=NAME)
    api = Api.over(settings.api, lake, Authenticator(database, required=True))
    app = Starlette(routes=api_routes(api))
    load_kernels(api_kernels())
    asyncio.run(_serve(app, head["token"]))
    return 0


def give_way() -> None:
    """Lower this process's priority below everything else on the machine.

    Linux first divides a core between sessions and then between the processes of each session, unless a container's
    cgroup applies. A session of its own with a low priority, plus a nice process, yields in both cases.
    """
    os.setsid()
    os.nice(_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_SESSION_NICE))


async def _serve(app: Starlette, token: str) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Connection(reader, writer).serve(app, token)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
