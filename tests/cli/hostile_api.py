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


def _batches() -> bytes:
    batch = pa.record_batch({"timestamp": pa.array([1], pa.timestamp("ns", "UTC")), "message": [HOSTILE]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch, custom_metadata={"lakerunner.summary": orjson.dumps({"warnings": [HOSTILE]})})
    body: bytes = sink.getvalue().to_pybytes()
    return body


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data: object = [HOSTILE] if "label" in self.path else [{"__name__": HOSTILE, HOSTILE: HOSTILE}]
        self._answer(orjson.dumps({"status": "success", "data": data, "warnings": [HOSTILE]}))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if b"refuse" in body:
            self._answer(orjson.dumps({"error": {"message": HOSTILE, "hint": HOSTILE}}), 422)
        else:
            self._answer(_batches() if "/rows/" in self.path else _frames())

    def _answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
