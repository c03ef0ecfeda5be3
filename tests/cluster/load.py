"""Rows that flow and queries that run while something is broken: what was sent, what was answered, what is stored."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.index.database import Database
from lakerunner.model.errors import LakeError
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from tests.cluster.deployment import ORGS, Deployment
from tests.cluster.servers import BUCKET
from tests.components.moto import REGION
from tests.soak.counting import live_segments

_EVERY_S = 1.0
#: How often each asker asks.
_ASK_S = 0.4
_TIMEOUT_S = 30.0


@dataclass
class Sender:
    """Writes an object of JSON lines per org and second; every row has a name of its own."""

    deployment: Deployment
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ORGS, 20))
    #: Counted when its last byte was written.
    sent: Counter[str] = field(default_factory=Counter)
    #: Counted before its first byte is written.
    begun: Counter[str] = field(default_factory=Counter)
    #: Key -> when it was written.
    written: dict[str, float] = field(default_factory=dict)
    #: Key -> its rows.
    sizes: dict[str, int] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        s3, _ = self.deployment.servers.clients()
        number = len(self.written)
        while not stop.wait(_EVERY_S):
            for org, count in self.rows.items():
                number += 1
                key = f"otel-raw/{org}/logs_{number:06d}.json"
                now_ns = time.time_ns()
                lines = [
                    {"timestamp": now_ns + nth, "service": "load", "level": "info", "message": f"{org} {number} {nth}"}
                    for nth in range(count)
                ]
                body = "\n".join(map(json.dumps, lines)).encode()
                self.begun[org] += count
                self.sizes[key] = count
                s3.put_object(Bucket=BUCKET, Key=key, Body=body)
                self.sent[org] += count
                self.written[key] = time.time()


@dataclass
class Committed:
    """The rows of each org that are known to be visible, read from the index again and again."""

    sender: Sender
    rows: Counter[str] = field(default_factory=Counter)

    def run(self, stop: threading.Event) -> None:
        database = self.sender.deployment.database()
        try:
            while not stop.wait(_EVERY_S):
                # An index that is down says nothing new.
                with contextlib.suppress(LakeError):
                    self._look(database)
        finally:
            database.close()

    def _look(self, database: Database) -> None:
        with database.transaction() as tx:
            done = tx.execute("SELECT key FROM raw_object WHERE state = 'done'").fetchall()
        rows: Counter[str] = Counter()
        for each in done:
            rows[each["key"].split("/")[1]] += self.sender.sizes.get(each["key"], 0)
        self.rows = rows


@dataclass
class Asker:
    """Asks for one org through whichever API is ready, as a load balancer would: a broken connection is tried once at
    the other host.

    It asks for the number of all rows. An answer without a warning has every row that was visible before, and no answer
    has more rows than were sent.
    """

    deployment: Deployment
    org: str
    sender: Sender
    committed: Committed
    #: What was wrong with answers, with the figures.
    wrong: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    _ready: dict[int, bool] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        threading.Thread(target=self._watch, args=(stop,), daemon=True).start()
        turn = 0
        while not stop.wait(_ASK_S):
            turn += 1
            self._ask(turn)

    def _watch(self, stop: threading.Event) -> None:
        """What a load balancer does: ask for readiness, often."""
        while not stop.wait(0.2):
            for host in self.deployment.hosts:
                try:
                    with urllib.request.urlopen(f"{host.api}/readyz", timeout=1.0):
                        self._ready[host.number] = True
                except (urllib.error.URLError, OSError):
                    self._ready[host.number] = False

    def _ask(self, turn: int) -> None:
        hosts = [each for each in self.deployment.hosts if self._ready.get(each.number, True)] or self.deployment.hosts
        hosts = hosts[turn % len(hosts) :] + hosts[: turn % len(hosts)]
        began = time.monotonic()
        for nth, host in enumerate(hosts):
            outcome = self._once(host.api)
            if outcome == "broken" and nth + 1 < len(hosts):
                self.answers["retried"] += 1
                continue
            self.answers[outcome] += 1
            break
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def _once(self, api: str) -> str:
        query = urllib.parse.urlencode({"query": 'sum(count_over_time({service_name="load"}[12h]))'})
        request = urllib.request.Request(
            f"{api}/loki/api/v1/query?{query}", headers={"Authorization": f"Bearer {self.deployment.keys[self.org]}"}
        )
        least = self.committed.rows[self.org]
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                document = json.loads(answer.read())
            return self._judged(api, document, least)
        except urllib.error.HTTPError as error:
            return f"http {error.code}"
        except (urllib.error.URLError, OSError, ValueError):
            return "broken"

    def _judged(self, api: str, document: dict[str, Any], least: int) -> str:
        rows = sum(int(each["value"][1]) for each in document["data"]["result"])
        most, warned = self.sender.begun[self.org], bool(document.get("warnings"))
        if rows > most or (rows < least and not warned):
            self.wrong.append(f"{self.org} at {api}: {rows} rows, of {least} to {most}, {time.time():.1f}")
            return "wrong"
        return "partial" if warned else "ok"


@dataclass(frozen=True)
class Stored:
    """What the lake holds of the load: rows of live segments, counted in the files, and distinct messages."""

    live: int
    distinct: int


def stored(deployment: Deployment) -> Stored:
    database = deployment.database()
    try:
        with database.transaction() as tx:
            segments = [each for each in live_segments(tx) if each.signal == "logs"]
    finally:
        database.close()
    config = StoreConfig(f"s3://{BUCKET}", region=REGION, endpoint=deployment.servers.moto.endpoint, allow_http=True)
    store = open_store(config)
    live, messages = 0, set()
    for segment in segments:
        table = pq.read_table(_buffer(store.get(keys.segment_keys(segment)[0])), columns=["message"])
        live += table.num_rows
        messages.update(pc.unique(table.column("message")).to_pylist())
    return Stored(live, len(messages))


def _buffer(data: bytes) -> object:
    import pyarrow as pa

    return pa.BufferReader(data)


def freshness(deployment: Deployment, written: dict[str, float]) -> list[float]:
    """For each object of the load, the seconds from its writing to its rows being visible, sorted."""
    database = deployment.database()
    try:
        with database.transaction() as tx:
            rows = tx.execute(
                "SELECT key, extract(epoch FROM ended_at)::float8 AS ended FROM raw_object WHERE state = 'done'"
            ).fetchall()
    finally:
        database.close()
    return sorted(row["ended"] - written[row["key"]] for row in rows if row["key"] in written)


def open_objects(deployment: Deployment, sent: int) -> int:
    """How many objects of the load are not done."""
    database = deployment.database()
    try:
        with database.transaction() as tx:
            row = tx.execute("SELECT count(*) AS n FROM raw_object WHERE state = 'done'").fetchone()
    finally:
        database.close()
    assert row is not None
    return sent - int(row["n"])
