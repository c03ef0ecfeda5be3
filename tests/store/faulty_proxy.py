"""A proxy in front of a store that fails the next calls as planned."""

from __future__ import annotations

import enum
import http.client
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_KEPT = {"content-length", "content-type", "content-encoding", "content-range", "etag", "last-modified"}


class Fault(enum.Enum):
    PASS = "let it through"
    BUSY = "answer 503 and do nothing"
    BROKEN = "answer 500 and do nothing"
    DENY = "answer 403 and do nothing"
    DROP = "close the connection and do nothing"
    LOSE_ANSWER = "do it, then close the connection without an answer"
    HANG = "do nothing and do not answer"


_STATUS = {Fault.BUSY: 503, Fault.BROKEN: 500, Fault.DENY: 403}
#: What a store in passing trouble does.
_PASSING = (Fault.BUSY, Fault.BROKEN, Fault.DROP, Fault.LOSE_ANSWER)


class FaultyProxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.planned: deque[Fault] = deque()
        self.calls: list[str] = []
        self.hang_s = 2.0
        #: While set, every call finds its connection closed.
        self.is_down = False
        #: "METHOD /path" contains the key -> status and S3's code of the answer. An empty key refuses every call.
        self.refusals: dict[str, tuple[int, str]] = {}
        self.refused = 0
        self._share, self._random = 0.0, random.Random()
        #: Calls that did not pass.
        self.failed = 0
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def plan(self, *faults: Fault) -> None:
        """Set the faults of the next calls; later calls pass. Resets the count of calls."""
        with self.lock:
            self.planned = deque(faults)
            self.calls = []

    def fail_at_random(self, share: float, seed: int) -> None:
        """From now on this share of calls fails with a random transient fault."""
        with self.lock:
            self._share, self._random = share, random.Random(seed)

    def next_fault(self, call: str) -> Fault:
        with self.lock:
            self.calls.append(call)
            fault = self._draw()
            self.failed += fault is not Fault.PASS
            return fault

    def refusal_of(self, call: str) -> tuple[int, str] | None:
        found = next((answer for part, answer in self.refusals.items() if part in call), None)
        with self.lock:
            self.refused += found is not None
        return found

    def _draw(self) -> Fault:
        if self.is_down:
            return Fault.DROP
        if self.planned:
            return self.planned.popleft()
        return self._random.choice(_PASSING) if self._random.random() < self._share else Fault.PASS

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.next_fault(f"{self.command} {self.path}")
        if refused := self.server.refusal_of(f"{self.command} {self.path}"):
            status, code = refused
            return self._refuse(status, f"<Error><Code>{code}</Code><Message>No.</Message></Error>".encode())
        if fault in _STATUS:
            return self._refuse(_STATUS[fault], b"")
        if fault is Fault.HANG:
            time.sleep(self.server.hang_s)
        if fault in (Fault.PASS, Fault.LOSE_ANSWER):
            self._forward(body, answer=fault is Fault.PASS)
        if fault is not Fault.PASS:
            self.close_connection = True

    def _refuse(self, status: int, body: bytes) -> None:
        self.send_response(status)
        # As S3 does: the answer to a HEAD has no body.
        body = b"" if self.command == "HEAD" else body
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _forward(self, body: bytes, *, answer: bool) -> None:
        upstream = http.client.HTTPConnection(*self.server.target, timeout=10)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            upstream.request(self.command, self.path, body, headers)
            response = upstream.getresponse()
            content = response.read()
            if answer:
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name.lower() in _KEPT:
                        self.send_header(name, value)
                if response.getheader("Content-Length") is None:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
        finally:
            upstream.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def faulty_proxy(host: str, port: int) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy((host, port))
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
