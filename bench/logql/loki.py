"""Loki as a peer, with its defaults except for limits that would refuse the records or the larger answers."""

from __future__ import annotations

import time
from pathlib import Path

from bench.served.server import Refused, Server

from tests.components.loki import loki_config
from tests.components.process import free_port

_FLUSH_S, _SETTLE_S = 120.0, 5.0


class Loki(Server):
    name = "loki"

    def __init__(self, folder: Path, binary: Path) -> None:
        super().__init__(folder)
        self._binary = binary

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        config = self.folder / "loki.yaml"
        config.write_text(loki_config(self.folder, self.port, free_port(), whole_queries=False))
        self.run([self._binary, f"-config.file={config}"], "log", "/ready", self.port, {})

    def write(self, body: bytes) -> None:
        """Send one export request."""
        response = self.send("POST", "/otlp/v1/logs", body, {"Content-Type": "application/x-protobuf"})
        answer = response.read()
        if response.status // 100 != 2:
            raise Refused(f"loki does not take the records: {response.status} {answer[:500].decode()}")

    def flush(self) -> None:
        """Write everything in memory to the store: a restart may lose what is not."""
        response = self.send("POST", "/flush")
        response.read()
        end = time.monotonic() + _FLUSH_S
        while self._gauge("loki_ingester_flush_queue_length") or time.monotonic() < end - _FLUSH_S + _SETTLE_S:
            if time.monotonic() > end:
                raise Refused("loki does not flush its records")
            time.sleep(0.5)

    def _gauge(self, name: str) -> float:
        text = self.send("GET", "/metrics").read().decode()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))
