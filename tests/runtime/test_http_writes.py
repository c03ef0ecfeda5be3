"""The head of an answer goes out with its body, and alone where the body is late."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lakerunner.runtime.http import HttpServer
from lakerunner.runtime.http_body import read_body
from lakerunner.runtime.http_writes import HeadWithBody

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class _Transport(asyncio.Transport):
    """Notes what is written, and what at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes | str] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Sequence[bytes]) -> None:  # type: ignore[override]
        self.written.append(b"".join(list_of_data))

    def close(self) -> None:
        self.written.append("closed")


def _after(*writes: bytes | str) -> list[bytes | str]:
    """What a transport is given for these writes; "later" lets the event loop come round."""

    async def run() -> list[bytes | str]:
        inner = _Transport()
        outer = HeadWithBody(inner, asyncio.get_running_loop())
        for each in writes:
            if each == "later":
                await asyncio.sleep(0)
            elif each == "close":
                outer.close()
            else:
                assert isinstance(each, bytes)
                outer.write(each)
        return inner.written

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("writes", "given"),
    [
        ((HEAD, b"body"), [HEAD + b"body"]),
        ((HEAD, b"one", b"two"), [HEAD + b"one", b"two"]),
        ((HEAD, "later"), [HEAD]),
        ((HEAD, "later", b"late"), [HEAD, b"late"]),
        ((HEAD, "close"), [HEAD, "closed"]),
        (
            (b"HTTP/1.1 100 Continue\r\n\r\n", "later", HEAD, b"body"),
            [b"HTTP/1.1 100 Continue\r\n\r\n", HEAD + b"body"],
        ),
        ((HEAD, b"body", "later", "close"), [HEAD + b"body", "closed"]),
    ],
)
def test_a_head_waits_for_what_comes_at_once(writes: tuple[bytes | str, ...], given: list[bytes | str]) -> None:
    assert _after(*writes) == given


@pytest.fixture
def port() -> Iterator[int]:
    async def echo(request: Request) -> Response:
        return Response(await read_body(request, 1_000, "less"))

    async def slow(_: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            await asyncio.sleep(1)
            yield b"late"

        return StreamingResponse(parts())

    server = HttpServer("127.0.0.1", 0, [Route("/", echo, methods=["POST"]), Route("/slow", slow)])
    server.start()
    yield server.port
    server.close()


@pytest.mark.parametrize("pieces", [(b"abc",), (b"a", b"bc")])
def test_a_body_is_read_whether_it_is_there_or_comes(port: int, pieces: tuple[bytes, ...]) -> None:
    head, first, *others = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", *pieces
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        for _ in range(2):
            connection.sendall(head + first)
            for piece in others:
                connection.sendall(piece)
            answer = b""
            while not answer.endswith(b"abc"):
                answer += connection.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 200")


def test_the_head_of_a_stream_comes_before_its_first_part(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.settimeout(0.8)
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
