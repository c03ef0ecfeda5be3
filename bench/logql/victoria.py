"""VictoriaLogs as a peer for its times: it has a language of its own, so its answers are not compared."""

from __future__ import annotations

import json
import time
from pathlib import Path

from bench.logql.records import RANGE_S, START_NS
from bench.served.server import Refused, Server

from lakerunner.model.time import NS_PER_S
from tests.components.process import free_port

#: The labels of its streams: those of Loki's that the records have.
_STREAM = "service.name,service.namespace,service.instance.id,deployment.environment"
_SETTLE_S, _SETTLE_WITHIN_S = 1.0, 60.0
QUERY = "/select/logsql/query"


class VictoriaLogs(Server):
    name = "victoria-logs"

    def __init__(self, folder: Path, binary: Path) -> None:
        super().__init__(folder)
        self._binary = binary

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        argv: list[str | Path] = [
            self._binary,
            f"-storageDataPath={self.folder}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=100y",
            "-loggerLevel=ERROR",
        ]
        self.run(argv, "log", "/health", self.port, {})

    def write(self, body: bytes) -> None:
        """Send one export request."""
        headers = {"Content-Type": "application/x-protobuf", "VL-Stream-Fields": _STREAM}
        response = self.send("POST", "/insert/opentelemetry/v1/logs", body, headers)
        answer = response.read()
        if response.status // 100 != 2:
            raise Refused(f"victoria-logs does not take the records: {response.status} {answer[:500].decode()}")

    def flush(self, records: int) -> None:
        """Wait until all records are found by the labels of their streams, which become visible last."""
        end = time.monotonic() + _SETTLE_WITHIN_S
        while (found := self._count()) != records:
            if time.monotonic() > end:
                raise Refused(f"victoria-logs has {found:,} of {records:,} records")
            time.sleep(_SETTLE_S)

    def _count(self) -> int:
        answer = self.ask(QUERY, fields_of('{service.namespace="shop"} | stats count() as n'))
        return int(json.loads(answer)["n"]) if answer else 0


def fields_of(query: str) -> tuple[tuple[str, str], ...]:
    """The form of a query over the whole range of the records."""
    return (("query", query), ("start", str(START_NS)), ("end", str(START_NS + RANGE_S * NS_PER_S)))
