"""Connections that exceed a timeout are closed; others are not."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.sync.client import connect

from lakerunner.runtime import http_limits
from lakerunner.runtime.http import HttpServer

LARGE = 64 << 20


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(http_limits, "HEAD_S", 0.5)
    monkeypatch.setattr(http_limits, "STALL_S", 0.5)

    async def small(_: Request) -> Response:
        return Response("here")

    async def large(_: Request) -> Response:
        return Response(b"x" * LARGE)

    async def late(socket: WebSocket) -> None:
        await socket.accept()
        await asyncio.sleep(1.2)
        await socket.send_text("late")
        await socket.close()

    routes = [Route("/", small), Route("/large", large), WebSocketRoute("/late", late)]
    server = HttpServer("127.0.0.1", 0, routes)
    server.start()
    yield server.port
    server.close()


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(5)
    return connection


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_never_ends(port: int, begun: bytes) -> None:
    with connected(port) as connection:
        connection.sendall(begun)
        began = time.monotonic()
        assert connection.recv(1) == b"", "closed"
        assert 0.3 < time.monotonic() - began < 3


def test_a_head_that_comes_letter_by_letter(port: int) -> None:
    with connected(port) as connection, pytest.raises(OSError):
        for letter in b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100:
            connection.sendall(bytes([letter]))
            time.sleep(0.02)


def test_a_second_head_that_never_ends(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while b"here" not in answer:
            answer += connection.recv(10_000)
        connection.sendall(b"GET / HT")
        assert connection.recv(1) == b""


@pytest.mark.parametrize("head", [b"X-Long: " + b"a" * 200_000, b"".join(b"X-%d: y\r\n" % n for n in range(20_000))])
def test_a_head_that_is_too_large(port: int, head: bytes) -> None:
    with connected(port) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + head)
            answer = connection.recv(10_000)
        except ConnectionError:
            answer = b""
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


def test_an_answer_that_nobody_takes(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(2.0)
        taken = 0
        try:
            while part := connection.recv(1 << 20):
                taken += len(part)
        except ConnectionError:
            pass
        assert taken < LARGE


def test_an_answer_that_is_taken_slowly(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        taken = 0
        while part := connection.recv(8 << 20):
            taken += len(part)
            if taken < LARGE // 2:
                time.sleep(0.02)
        assert taken > LARGE


def test_a_websocket_may_be_silent(port: int) -> None:
    """A tail has nothing to send for as long as nothing is logged."""
    with connect(f"ws://127.0.0.1:{port}/late") as tail:
        assert tail.recv(timeout=5) == "late"
