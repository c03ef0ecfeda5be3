"""The known workers and their health. A worker that failed is tried last until it answers a ping."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow.flight as flight

from lakerunner.query.fanout.addresses import Addresses
from lakerunner.query.fanout.connections import Connections
from lakerunner.query.fanout.errors import Draining, from_flight

#: How long after a failure a worker is pinged to see whether it is back.
_DOWN_S = 1.0
_PING_S = 2.0
_MAX_PINGS = 8
#: How often connections to workers that have left are looked for while the addresses stay the same.
_TIDY_S = 5.0


@dataclass(frozen=True, slots=True)
class _Down:
    """A worker that failed: since when it is down, and when to ping it."""

    since: float
    ping_at: float


class Roster:
    """Safe to share between threads: every change is to one entry of a dictionary."""

    def __init__(self, addresses: Addresses, connections: Connections) -> None:
        self._addresses = addresses
        self._connections = connections
        self._down: dict[str, _Down] = {}
        self._known: list[str] = []
        self._tidy_at = 0.0
        self._pings = ThreadPoolExecutor(_MAX_PINGS, thread_name_prefix="ping")

    def known(self) -> list[str]:
        """The current addresses of workers. Forgets workers that left, and pings those that failed."""
        known = self._addresses()
        now = time.monotonic()
        if known != self._known or now > self._tidy_at:
            self._connections.keep_only(known)
            self._known, self._tidy_at = known, now + _TIDY_S
        for address, down in list(self._down.items()):
            if address not in known:
                self._down.pop(address, None)
            elif now > down.ping_at:
                self._down[address] = _Down(down.since, now + _DOWN_S + _PING_S)
                self._pings.submit(self._readmit, address)
        return known

    def up(self) -> list[str]:
        """The known workers that have not failed."""
        known = self.known()
        return [address for address in known if address not in self._down] if self._down else known

    def failed(self, address: str) -> None:
        now = time.monotonic()
        before = self._down.get(address)
        self._down[address] = _Down(before.since if before else now, now + _DOWN_S)

    def answered(self, address: str) -> None:
        self._down.pop(address, None)

    def is_down(self, address: str) -> bool:
        return address in self._down

    def any_down_for_less_than(self, seconds: float) -> bool:
        """Whether a worker went down so recently that it may be about to come back."""
        return any(time.monotonic() - down.since < seconds for down in list(self._down.values()))

    def ping(self, address: str, lives: Callable[[], None]) -> None:
        """Ping the worker in a thread, and call `lives` if it answers, even if it accepts no new work."""
        self._pings.submit(self._ping, address, lives)

    def close(self) -> None:
        self._pings.shutdown(wait=False, cancel_futures=True)

    def _readmit(self, address: str) -> None:
        try:
            self._connections.ping(address, _PING_S)
        except flight.FlightError:
            self._connections.forget(address)
        else:
            self.answered(address)

    def _ping(self, address: str, lives: Callable[[], None]) -> None:
        try:
            self._connections.ping(address, _PING_S)
        except flight.FlightError as reason:
            if not isinstance(from_flight(reason, address), Draining):
                return
        lives()
