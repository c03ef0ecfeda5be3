"""Addresses of the workers: a fixed list, all addresses of a DNS name, or the worker of this machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.runtime.settings import Settings

#: Called before every scan, because workers come and go.
Addresses: TypeAlias = Callable[[], list[str]]

_DNS = "dns://"
_DNS_TTL_S = 5.0
NOTE = "query-worker.address"


def addresses_of(settings: Settings) -> Addresses:
    """The source of addresses that `query.workers` configures."""
    given = settings.query.workers.strip()
    if not given:
        return _Noted(settings.data.dir)
    if given.startswith(_DNS):
        return _Resolved(*_split(given.removeprefix(_DNS)))
    fixed = [":".join((host, str(port))) for host, port in map(_split, filter(None, given.split(",")))]
    return lambda: fixed


def note_address(data_dir: Path, address: str) -> None:
    """Write the address of this machine's worker to the data folder, where the API finds it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    part = data_dir / f"{NOTE}.part"
    part.write_text(address, encoding="ascii")
    part.replace(data_dir / NOTE)


def forget_address(data_dir: Path, address: str) -> None:
    """Delete the note of the address, unless another worker has written its own since."""
    if noted(data_dir) == [address]:
        (data_dir / NOTE).unlink(missing_ok=True)


def noted(data_dir: Path) -> list[str]:
    """The address of this machine's worker; empty if none runs."""
    try:
        return [(data_dir / NOTE).read_text(encoding="ascii")]
    except OSError:
        return []


class _Noted:
    """The address of this machine's worker. The file is read again only when it has changed: a query asks often."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = str(data_dir / NOTE)
        self._version: tuple[int, int] | None = None
        self._found: list[str] = []

    def __call__(self) -> list[str]:
        try:
            stat = os.stat(self._path)  # noqa: PTH116  (a query asks often, and a path takes twice as long)
        except OSError:
            return []
        version = stat.st_ino, stat.st_mtime_ns
        if version != self._version:
            self._found, self._version = noted(self._data_dir), version
        return self._found


class _Resolved:
    """All addresses of a DNS name, resolved every few seconds. While resolution fails, the last addresses stay."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._found: list[str] = []
        self._until_s = 0.0

    def __call__(self) -> list[str]:
        if time.monotonic() < self._until_s:
            return self._found
        try:
            answers = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as reason:
            if not self._found:
                raise Unavailable(f"cannot find query workers: {self._host}: {reason}", where="query.workers") from None
            return self._found
        hosts = sorted({str(answer[4][0]) for answer in answers})
        self._found = [f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}" for host in hosts]
        self._until_s = time.monotonic() + _DNS_TTL_S
        return self._found


def _split(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise BadInput(f"cannot use {text!r} as a worker's address", hint="write host:port", where="query.workers")
    return host, int(port)
