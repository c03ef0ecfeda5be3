"""A query API whose every name, value and message is hostile, for the verbs that show its answers."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import pyarrow as pa

#: Markup, terminal control, new lines, text that runs backwards or hides, wide characters, and length.
HOSTILE = "[/red][bold]\x1b[31m\x9b2J\x07\x00\x7f\nnext\r\tline\u202eevil\u200b漢é\U000e0041" + "x" * 3_000
#: What PostgreSQL can store of it.
STORABLE = HOSTILE.replace("\x00", "")


@contextmanager
def hostile_api() -> Iterator[str]:
    """Yield the address of the API."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _frames() -> bytes:
    point = {"timestamp": 1_700_000_000_000, "label": HOSTILE, "tags": {HOSTILE: HOSTILE}, "value": 1.5}
    frames = [
        {"type": "result", "data": point},
        {"type": "warnings", "data": {"warnings": [HOSTILE], "infos": [HOSTILE]}},
        {"type": "summary", "data": {"note": HOSTILE}},
        {"type": "done", "data": {}},
    ]
    return b"".join(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames)


def _tail() -> bytes:
    entry = {"timestamp": 0, "timestampNs": "1", "message": HOSTILE, "tags": {HOSTILE: HOSTILE}}
    frames = [
        {"type": "heartbeat", "data": {}},
        {"type": "result", "data": entry},
        {"type": "dropped", "data": {"entries": 3}},
        {"type": "done", "data": {}},
    ]
    return b"".join(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames)


def _batches() -> bytes:
    batch = pa.record_batch({"timestamp": pa.array([1], pa.timestamp("ns", "UTC")), "message": [HOSTILE]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch, custom_metadata={"lakerunner.summary": orjson.dumps({"warnings": [HOSTILE]})})
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _entries() -> bytes:
    labels = orjson.dumps({HOSTILE: HOSTILE}).decode()
    batch = pa.record_batch(
        {
            "timestamp": pa.array([1], pa.timestamp("ns", "UTC")),
            "line": [HOSTILE],
            "stream": ['{"service_name":"[/red]"}'],
            "metadata": [labels],
            "parsed": ["{}"],
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch, custom_metadata={"lakerunner.summary": orjson.dumps({"warnings": [HOSTILE]})})
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _found(path: str) -> object:
    """The answer of Loki's API to a request for volumes, fields or patterns."""
    if "volume" in path:
        value = {"value": [1, "5"], "values": [[1, "5"], [2, "6"]]}
        return {"data": {"result": [{"metric": {HOSTILE: HOSTILE}, **value}]}, "warnings": [HOSTILE]}
    if "fields" in path:
        return {"fields": [{"label": HOSTILE, "type": HOSTILE, "cardinality": 1, "parsers": [HOSTILE]}]}
    return {"data": [{"pattern": HOSTILE, "level": HOSTILE, "samples": [[1, 2], [2, 3]]}], "warnings": [HOSTILE]}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/loki/"):
            if "refuse" in self.path:
                self._answer(HOSTILE.encode(), 400, "text/plain")
            else:
                self._answer(orjson.dumps(_found(self.path)))
            return
        data: object = [HOSTILE] if "label" in self.path else [{"__name__": HOSTILE, HOSTILE: HOSTILE}]
        self._answer(orjson.dumps({"status": "success", "data": data, "warnings": [HOSTILE]}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if b"refuse" in body:
            self._answer(orjson.dumps({"error": {"message": HOSTILE, "hint": HOSTILE}}), 422)
        elif "/logs/query" in self.path:
            if b"rate(" in body:
                self._answer(_frames(), kind="text/event-stream")
            else:
                self._answer(_entries(), kind="application/vnd.apache.arrow.stream")
        elif "/logs/tail" in self.path:
            self._answer(_tail(), kind="text/event-stream")
        else:
            self._answer(_batches() if "/rows/" in self.path else _frames())

    def _answer(self, body: bytes, status: int = 200, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
