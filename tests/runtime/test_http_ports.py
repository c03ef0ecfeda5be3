"""Ports of several roles: different ones, all free, or an error that names the one that is not."""

from __future__ import annotations

import random
import socket
from typing import ClassVar, Self

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.runtime import http
from lakerunner.runtime.http import require_free_ports

_HOST = "127.0.0.1"


class _Lowest:
    """A listener of a system that gives the lowest port that nobody holds."""

    held: ClassVar[set[int]] = set()

    def __init__(self, host: str, port: int) -> None:
        self._name = host, next(number for number in range(1, 100) if number not in self.held)
        self.held.add(self._name[1])

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.discard(self._name[1])


def test_free_ports_are_different_where_the_system_gives_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_bind", _Lowest)
    assert require_free_ports(_HOST, 0, 5) == [1, 2, 3, 4, 5]
    assert not _Lowest.held


def test_ports_follow_each_other_from_a_given_one() -> None:
    first = _first_of_free(3)
    assert require_free_ports(_HOST, first, 3) == [first, first + 1, first + 2]


def test_a_port_in_use_is_named() -> None:
    first = _first_of_free(3)
    with socket.create_server((_HOST, first + 2)), pytest.raises(BadInput, match=f"{first + 2}: another process"):
        require_free_ports(_HOST, first, 3)


def _first_of_free(count: int) -> int:
    """Below the ports that the system gives to outgoing connections."""
    while True:
        first = random.randrange(20_000, 30_000)
        try:
            require_free_ports(_HOST, first, count)
        except BadInput:
            continue
        return first
