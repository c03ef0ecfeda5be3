"""Watches which connections the roles of a running deployment open, by role and by what stands at the other end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from tests.cluster.deployment import Deployment

_EVERY_S = 2.0
EXECUTOR = "spark-executor"


@dataclass(frozen=True, order=True)
class Connection:
    """One role calls another role, executors, or a peer. `port` is named as in deploy/connections.yaml, or empty."""

    caller: str
    callee: str
    port: str = ""

    def __str__(self) -> str:
        return f"{self.caller} -> {self.callee}{f' at {self.port}' if self.port else ''}"


@dataclass(frozen=True)
class _Owner:
    """The processes that make up one role of one host, or all executors of one Spark worker."""

    role: str
    place: str


@dataclass
class ConnectionWatch:
    """Looks at the sockets of all processes every two seconds, so a shorter connection may be missed."""

    deployment: Deployment
    seen: set[Connection] = field(default_factory=set)

    @contextmanager
    def watching(self) -> Iterator[set[Connection]]:
        stop = threading.Event()
        failed: list[BaseException] = []
        thread = threading.Thread(target=self._run, args=(stop, failed), name="connection-watch", daemon=True)
        thread.start()
        try:
            yield self.seen
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def _run(self, stop: threading.Event, failed: list[BaseException]) -> None:
        try:
            while not stop.wait(_EVERY_S):
                self.look()
        except BaseException as error:  # noqa: BLE001  raised again by the thread that waits
            failed.append(error)

    def look(self) -> None:
        """Add what is connected now."""
        sockets = [each for each in psutil.net_connections("tcp") if each.pid is not None]
        owners = self._owners()
        peers, driver_ports = self._peers(), self._driver_ports()
        listening = {each.laddr.port: owners.get(each.pid) for each in sockets if each.status == psutil.CONN_LISTEN}
        for each in sockets:
            caller = owners.get(each.pid)
            if caller is None or not each.raddr or each.laddr.port in listening:
                continue
            port = each.raddr.port
            if port in peers:
                self.seen.add(Connection(caller.role, peers[port]))
            elif (callee := listening.get(port)) is not None and callee != caller:
                self.seen.add(Connection(caller.role, callee.role, self._port_name(callee, port, driver_ports)))

    def _peers(self) -> dict[int, str]:
        servers = self.deployment.servers
        found = {servers.postgres.port: "index", servers.moto.port: "bucket"}
        found |= {proxy.port: "index" for proxy in servers.index_proxies}
        found |= {proxy.port: "bucket" for proxy in servers.store_proxies}
        found |= {proxy.port: "queue" for proxy in servers.queue_proxies}
        found |= {int(brokers.rpartition(":")[2]): "bus" for brokers in servers.brokers}
        if servers.with_spark:
            found[int(servers.spark.master.rpartition(":")[2])] = "spark"
        return found

    def _owners(self) -> dict[int, _Owner]:
        """By process: its role. Children belong to the role that started them."""
        roots = {
            about["pid"]: _Owner(role, f"host {host.number}")
            for host in self.deployment.hosts
            for role, about in host.processes().items()
        }
        if self.deployment.servers.with_spark:
            for worker in self.deployment.servers.spark.worker_pids():
                roots[worker] = _Owner(EXECUTOR, f"worker {worker}")
        parents = {each.pid: each.info["ppid"] for each in psutil.process_iter(["ppid"])}
        found: dict[int, _Owner] = {}
        for pid in parents:
            at: int | None = pid
            while at and at not in roots:
                at = parents.get(at)
            if at:
                found[pid] = roots[at]
        if self.deployment.servers.with_spark:
            # A Spark worker itself is not ours: it speaks to its master and starts executors.
            for worker in self.deployment.servers.spark.worker_pids():
                found.pop(worker, None)
        return found

    def _driver_ports(self) -> set[int]:
        if not self.deployment.servers.with_spark:
            return set()
        return self.deployment.servers.spark.driver_ports()

    def _port_name(self, callee: _Owner, port: int, driver_ports: set[int]) -> str:
        for host in self.deployment.hosts:
            if port == host.worker_port:
                return "flight"
            if callee.place == f"host {host.number}" and host.processes().get(callee.role, {}).get("port") == port:
                return "http"
        return "spark-driver" if port in driver_ports else "spark-blocks"
