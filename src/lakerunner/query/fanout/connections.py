"""Connections to workers: opened on demand, dropped when the worker leaves or fails.

A worker of this machine may have a socket beside Flight (`socket_calls.py`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow.flight as flight

from lakerunner.query.fanout.protocol import FILTERS, PING, SegmentObjects, filters_body
from lakerunner.query.fanout.socket_calls import SocketCalls
from lakerunner.query.fanout.tls import Tls, scheme_of

_OPTIONS = [
    # Bounds one attempt to connect: an address that does not answer at all must not use up the query's time.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A new client must not inherit the reconnect backoff of an earlier client of the same address.
    ("grpc.use_local_subchannel_pool", 1),
]

#: How long a worker may take for the filters of some segments, which it may have to fetch from the bucket.
_FILTERS_S = 30.0


class Connections:
    """The open Flight clients by address, and the sockets. Safe to share between threads."""

    def __init__(self, token: str, tls: Tls | None = None, data_dir: Path | None = None) -> None:
        self._token = token
        # With TLS, whoever asks a worker must show a certificate, and a socket has none.
        self.sockets = SocketCalls(data_dir if tls is None else None)
        self._scheme = scheme_of(tls)
        self._options = {} if tls is None else tls.of_client()
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def client(self, address: str) -> Any:
        with self._lock:
            client = self._clients.get(address)
            if client is None:
                client = flight.connect(f"{self._scheme}://{address}", generic_options=_OPTIONS, **self._options)
                self._clients[address] = client
            return client

    def ping(self, address: str, timeout_s: float) -> None:
        """Return if the worker accepts work. Raise a FlightError if it does not, or does not answer in time."""
        action = flight.Action(PING, orjson.dumps({"token": self._token}))
        list(self.client(address).do_action(action, flight.FlightCallOptions(timeout=timeout_s)))

    def filters(self, address: str, org_id: uuid.UUID, segments: Sequence[SegmentObjects]) -> list[bytes]:
        """The packed filters of the segments. Raises a FlightError if the worker does not give them."""
        action = flight.Action(FILTERS, filters_body(org_id, segments, self._token))
        results = self.client(address).do_action(action, flight.FlightCallOptions(timeout=_FILTERS_S))
        return [result.body.to_pybytes() for result in results]

    def forget(self, address: str) -> None:
        # Not closed, because other threads may be reading from it. The last reference frees it.
        with self._lock:
            self._clients.pop(address, None)
        self.sockets.forget(address)

    def keep_only(self, addresses: Collection[str]) -> None:
        """Drop the connections to all other workers."""
        with self._lock:
            gone = [address for address in self._clients if address not in addresses]
            for address in gone:
                del self._clients[address]
        self.sockets.keep_only(addresses)

    def close(self) -> None:
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        self.sockets.close()
        for client in clients:
            client.close()

    def __len__(self) -> int:
        return len(self._clients)
