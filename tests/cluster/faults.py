"""The cluster's slice of `make faults`: break each thing while rows flow and queries run, and wait until it has healed.

    python -m tests.cluster.faults [--only PREFIX] [--results FILE] [--hold 30] [--hosts 2] [--local]
        [--connections FILE]

One JSON line per fault: rows sent, live and distinct, answers that were not 200 or had the wrong number of rows, and
the time to heal after the thing was given back. With --results, faults that are in the file already are not run again.
Exits with 1 if any is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.connections import Connection, ConnectionWatch
from tests.cluster.deployment import ORGS, Deployment
from tests.cluster.load import Asker, Committed, Sender, freshness, open_objects, stored
from tests.cluster.servers import DENIED

#: How long everything may take to heal.
_HEAL_S = 300.0
_WARM_S = 5.0
_WITH_200 = ("ok", "partial", "wrong", "retried")
NOISY = "noisy-neighbour"
KILLED_ROLES = (
    "query-api", "query-worker", "monitor", "ruler", "relay", "sweeper", "pubsub", "boxer-ingest", "ingest",
    "boxer-compact", "compact", "boxer-rollup", "rollup", "boxer-delete", "delete", "boxer-backfill", "backfill",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    name: str
    apply: Callable[[Deployment], None]
    undo: Callable[[Deployment], None] = lambda _: None
    #: How long it lasts, as a share of --hold.
    share: float = 1.0


def _kill(role: str) -> Callable[[Deployment], None]:
    return lambda deployment: deployment.hosts[0].kill(role)


def _store(deployment: Deployment, act: str) -> None:
    """Bucket and queue are one server."""
    for proxy in (*deployment.servers.store_proxies, *deployment.servers.queue_proxies):
        {"silence": proxy.silence, "refuse": proxy.refuse, "deny": lambda p=proxy: p.refuse(DENIED),
         "resume": proxy.resume}[act]()  # fmt: skip


def _network(deployment: Deployment, silent: bool) -> None:
    for proxy in deployment.servers.network(1):
        if silent:
            proxy.silence()
        else:
            proxy.resume()


def _kill_executor(deployment: Deployment) -> None:
    for process in deployment.servers.spark.executor_processes():
        process.kill()


def _roll(deployment: Deployment) -> None:
    """Tell every role of one host after the other to stop, and wait for its successor."""
    for host in deployment.hosts:
        for role in host.processes():
            pid = host.processes()[role]["pid"]
            host.kill(role, signal.SIGTERM)
            end = time.monotonic() + 60
            while host.processes()[role]["pid"] == pid and time.monotonic() < end:
                time.sleep(0.1)
            if role in ("query-api", "query-worker", "ingest"):
                _until(lambda host=host, role=role: role not in host.waiting(), f"{role} is ready again", 90)


def _roll_hosts(deployment: Deployment) -> None:
    """Stop one host after the other as a whole, and start it again."""
    for host in deployment.hosts:
        host.stop()
        host.start()
        _until(lambda host=host: not host.waiting(), f"host {host.number} is ready again", _HEAL_S)


FAULTS = (
    *(Fault(f"kill/{role}", _kill(role), share=0.1) for role in KILLED_ROLES),
    Fault("spark/lost", lambda d: d.servers.spark.kill(), lambda d: d.servers.spark.start()),
    Fault("spark/executors-killed", _kill_executor, share=0.1),
    Fault("spark/master-restarted", lambda d: d.servers.spark.restart_master(), share=0.1),
    Fault("postgres/stopped", lambda d: d.servers.postgres.stop(), lambda d: d.servers.postgres.start()),
    Fault("postgres/frozen", lambda d: d.servers.postgres.freeze(True), lambda d: d.servers.postgres.freeze(False)),
    Fault(
        "postgres/credentials-revoked",
        lambda d: d.servers.postgres.revoke(True),
        lambda d: d.servers.postgres.revoke(False),
        share=2.0,
    ),
    Fault("kafka/stopped", lambda d: d.servers.kafka.stop(), lambda d: d.servers.kafka.start()),
    Fault("kafka/frozen", lambda d: d.servers.kafka.freeze(True), lambda d: d.servers.kafka.freeze(False)),
    Fault("s3/stopped", lambda d: _store(d, "refuse"), lambda d: _store(d, "resume")),
    Fault("s3/frozen", lambda d: _store(d, "silence"), lambda d: _store(d, "resume")),
    Fault("s3/credentials-revoked", lambda d: _store(d, "deny"), lambda d: _store(d, "resume"), share=2.0),
    Fault("network/host-silent", lambda d: _network(d, True), lambda d: _network(d, False)),
    Fault("rolling-restart/roles", _roll, share=0.0),
    Fault("rolling-restart/hosts", _roll_hosts, share=0.0),
    Fault(NOISY, lambda _: None),
)


class Trial:
    """The load over the whole run; each fault counts what happened during its own time."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.sender = Sender(deployment)
        self.committed = Committed(self.sender)
        self.askers = [Asker(deployment, org, self.sender, self.committed) for org in ORGS]
        self.watch = ConnectionWatch(deployment)
        self._failed: list[BaseException] = []

    @contextmanager
    def load(self) -> Iterator[None]:
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._guarded, args=(each.run, stop), daemon=True)
            for each in (self.sender, self.committed, *self.askers)
        ]
        for thread in threads:
            thread.start()
        try:
            with self.watch.watching():
                yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        if self._failed:
            raise self._failed[0]

    def _guarded(self, run: Callable[[threading.Event], None], stop: threading.Event) -> None:
        try:
            run(stop)
        except BaseException as error:  # noqa: BLE001  raised again by the thread that waits
            self._failed.append(error)

    def run(self, fault: Fault, hold_s: float) -> dict[str, object]:
        before = self._answers()
        wrong = len(self._wrong())
        objects = len(self.sender.written)
        began = time.monotonic()
        with self.load():
            time.sleep(_WARM_S)
            fault.apply(self._deployment)
            time.sleep(fault.share * hold_s)
            fault.undo(self._deployment)
            undone = time.monotonic()
            self._deployment.await_ready(_HEAL_S)
            ready_s = time.monotonic() - undone
            # What is sent from here on shows that it works again.
            time.sleep(_WARM_S)
        _until(lambda: open_objects(self._deployment, len(self.sender.written)) == 0, "all is ingested", _HEAL_S)
        healed_s = time.monotonic() - undone - _WARM_S
        found = stored(self._deployment)
        sent = sum(self.sender.sent.values())
        answers = self._answers() - before
        failed = sum(
            count for outcome, count in answers.items() if outcome not in ("ok", "partial", "retried", "wrong")
        )
        mine = dict(list(self.sender.written.items())[objects:])
        waits = freshness(self._deployment, mine)
        wrong_now = self._wrong()[wrong:]
        holds = sent == found.live == found.distinct and not wrong_now
        holds = holds and (not fault.name.startswith("rolling-restart") or failed == 0)
        return {
            "fault": f"cluster/{fault.name}",
            "verdict": "held" if holds else "broken",
            "sent": sent,
            "live": found.live,
            "distinct": found.distinct,
            "answers": dict(answers),
            "not_200": failed,
            "wrong": wrong_now[:10],
            "slowest_answer_s": round(max(each.slowest_s for each in self.askers), 1),
            "ready_s": round(ready_s, 1),
            "healed_s": round(healed_s, 1),
            "freshness_p50_s": round(waits[len(waits) // 2], 1),
            "freshness_p99_s": round(waits[int(0.99 * len(waits))], 1),
            "took_s": round(time.monotonic() - began, 1),
            "load": round(os.getloadavg()[1], 1),
        }

    def noisy(self, hold_s: float) -> dict[str, object]:
        """One org alone, then beside another that sends a hundred times as much: how late are its rows?"""
        small, large = ORGS
        rows = self.sender.rows
        p99: list[float] = []
        for load in ({small: 20}, {small: 20, large: 2_000}):
            self.sender.rows = load
            before = len(self.sender.written)
            with self.load():
                time.sleep(hold_s)
            _until(lambda: open_objects(self._deployment, len(self.sender.written)) == 0, "all is ingested", _HEAL_S)
            mine = dict(list(self.sender.written.items())[before:])
            waits = freshness(self._deployment, {key: at for key, at in mine.items() if f"/{small}/" in key})
            p99.append(waits[int(0.99 * len(waits))])
        self.sender.rows = rows
        alone_s, beside_s = p99
        return {
            "fault": f"cluster/{NOISY}",
            "verdict": "held" if beside_s <= 3 * alone_s else "broken",
            "freshness_p99_alone_s": round(alone_s, 1),
            "freshness_p99_beside_s": round(beside_s, 1),
            "ratio": round(beside_s / alone_s, 2),
            "load": round(os.getloadavg()[1], 1),
        }

    def _wrong(self) -> list[str]:
        return [each for asker in self.askers for each in asker.wrong]

    def _answers(self) -> Counter[str]:
        return sum((each.answers for each in self.askers), Counter[str]())


def _until(holds: Callable[[], bool], what: str, timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.3)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults", description=__doc__)
    parser.add_argument("--only", default="", help="prefixes of the faults to run, such as cluster/spark,cluster/kafka")
    parser.add_argument("--results", type=Path, help="file of finished faults, to go on where a run ended")
    parser.add_argument("--hold", type=float, default=30.0, help="seconds that an outage lasts")
    parser.add_argument("--folder", type=Path, help="where data and logs go and stay")
    parser.add_argument("--hosts", type=int, default=2, help="how many hosts; with one, its outages are outages")
    parser.add_argument("--local", action="store_true", help="Spark in each worker process, without a cluster of it")
    parser.add_argument("--connections", type=Path, help="file to which the connections that roles opened are added")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no fault after so long")
    chosen = parser.parse_args()
    # Whoever ends this run ends the whole deployment.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    only = tuple(each.removeprefix("cluster").removeprefix("/") for each in chosen.only.split(","))
    done = set()
    if chosen.results is not None and chosen.results.exists():
        done = {json.loads(line)["fault"] for line in chosen.results.read_text().splitlines()}
    wanted = [each for each in FAULTS if each.name.startswith(only) and f"cluster/{each.name}" not in done]
    if not wanted:
        return 0
    began, broken = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="lakerunner-cluster-", ignore_cleanup_errors=True) as scratch:
        folder = chosen.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        with Deployment(folder, chosen.hosts, not chosen.local) as deployment:
            _say({"fault": "cluster/none", "ready_s": round(deployment.seconds_to_ready, 1)})
            trial = Trial(deployment)
            for fault in wanted:
                if time.monotonic() - began > chosen.seconds:
                    break
                try:
                    result = trial.noisy(chosen.hold) if fault.name == NOISY else trial.run(fault, chosen.hold)
                except AssertionError as reason:
                    result = {"fault": f"cluster/{fault.name}", "verdict": "broken", "reason": str(reason)[:500]}
                _say(result)
                broken += result["verdict"] != "held"
                if chosen.results is not None and result["verdict"] == "held":
                    with chosen.results.open("a") as file:
                        file.write(json.dumps(result) + "\n")
                if result["verdict"] != "held":
                    break
            if chosen.connections is not None:
                _add_connections(chosen.connections, trial.watch.seen)
    return 1 if broken else 0


def _add_connections(path: Path, seen: set[Connection]) -> None:
    known = set(path.read_text().splitlines()) if path.exists() else set()
    path.write_text("\n".join(sorted(known | set(map(str, seen)))) + "\n")


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
