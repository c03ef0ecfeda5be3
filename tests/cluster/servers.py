"""The servers that Lakerunner stands on, each of which can be stopped, frozen or refuse its clients."""

from __future__ import annotations

import os
import secrets
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import psycopg

from lakerunner.index.embedded import EmbeddedPostgres
from tests.components.kafka import KafkaBroker, kafka_jars
from tests.components.moto import CREDENTIALS, REGION, create_bucket_with_queue, running_moto
from tests.components.process import ComponentFailed, free_port
from tests.components.silent_proxy import SilentProxy
from tests.components.spark_cluster import SparkCluster

BUCKET = "telemetry"
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_DENIED_BODY = b'<?xml version="1.0"?><Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>'
DENIED = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: "
    + str(len(_DENIED_BODY)).encode()
    + b"\r\n\r\n"
    + _DENIED_BODY
)


class TcpPostgres(EmbeddedPostgres):
    """PostgreSQL over TCP, with a role that logs in with a password."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self.port = free_port()
        self.password = secrets.token_hex(8)
        self._process: Any = None

    def command(self) -> list[str]:
        return [*super().command(), "-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}"]

    @property
    def admin_url(self) -> str:
        return f"{self.url}&port={self.port}"

    def url_at(self, port: int) -> str:
        """The address of the database for roles, through that port."""
        return f"postgresql://lakerunner:{self.password}@127.0.0.1:{port}/lakerunner"

    def start(self) -> None:
        fresh = not (self.pgdata / "PG_VERSION").exists()
        self.prepare()
        (self.pgdata / "pg_hba.conf").write_text(_HBA)
        self._process = self.spawn(self._folder / "postgres.log")
        self._await()
        if fresh:
            with psycopg.connect(self.admin_url, autocommit=True) as admin:
                admin.execute(f"CREATE ROLE lakerunner LOGIN PASSWORD '{self.password}'")
                admin.execute("CREATE DATABASE lakerunner OWNER lakerunner")

    def stop(self, timeout_s: float = 15.0) -> None:
        super().stop(timeout_s)
        if self._process is not None:
            self._process.wait(30)
            self._process = None

    def freeze(self, frozen: bool) -> None:
        _freeze(self._process.pid, frozen)

    def revoke(self, revoked: bool) -> None:
        """Take the right to log in from the role, and end its sessions; or give it back."""
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute(f"ALTER ROLE lakerunner {'NOLOGIN' if revoked else 'LOGIN'}")
            if revoked:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'lakerunner'")

    def _await(self) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.admin_url).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise ComponentFailed(f"PostgreSQL did not start: {error}") from None
            time.sleep(0.1)


class Kafka(KafkaBroker):
    def freeze(self, frozen: bool) -> None:
        assert self._process is not None
        _freeze(self._process.pid, frozen)


def _freeze(pid: int, frozen: bool) -> None:
    number = signal.SIGSTOP if frozen else signal.SIGCONT
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        os.kill(process.pid, number)


class Servers:
    """All of them. Each host has its own proxies before index, bucket and queue; the second one before Kafka too."""

    def __init__(self, folder: Path, hosts: int = 2, with_spark: bool = True) -> None:
        self._stack = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)
        # PostgreSQL has a user of its own, if this is root.
        folder.chmod(0o755)
        self.postgres = TcpPostgres(folder / "pg")
        self.kafka = Kafka(kafka_jars(), folder / "kafka")
        self.spark = SparkCluster(folder / "spark", workers=2, cores=3, memory="3g")
        self.with_spark = with_spark
        self._folder = folder
        self._hosts = hosts
        #: By host.
        self.index_proxies: list[SilentProxy] = []
        self.store_proxies: list[SilentProxy] = []
        self.queue_proxies: list[SilentProxy] = []
        self.brokers: list[str] = []
        self.kafka_proxy: SilentProxy | None = None

    def start(self) -> None:
        (self._folder / "pg").mkdir(exist_ok=True)
        (self._folder / "spark").mkdir(exist_ok=True)
        # Those that take longest first; none waits for another.
        # Whoever interrupts a start leaves nothing behind.
        if self.with_spark:
            self._stack.callback(self.spark.kill)
            self.spark.start()
        self._stack.callback(self._stop_kafka)
        self.kafka.start()
        self._stack.callback(self._stop_postgres)
        self.postgres.start()
        self.moto = self._stack.enter_context(running_moto(self._folder))
        os.environ.update({**CREDENTIALS, "AWS_DEFAULT_REGION": REGION})
        s3, sqs = self.clients()
        create_bucket_with_queue(s3, sqs, BUCKET, "otel-raw/")
        for host in range(self._hosts):
            index = SilentProxy(("127.0.0.1", self.postgres.port))
            store = SilentProxy((self.moto.host, self.moto.port))
            self.index_proxies.append(self._stack.enter_context(index))
            self.store_proxies.append(self._stack.enter_context(store))
            # The same server as the bucket, at an address of its own: connections to either can be told apart.
            queue = SilentProxy((self.moto.host, self.moto.port))
            self.queue_proxies.append(self._stack.enter_context(queue))
            if host == 0:
                self.brokers.append(self.kafka.brokers)
            else:
                self.kafka_proxy, address = self._stack.enter_context(self.kafka.behind_proxy())
                self.brokers.append(address)

    def clients(self) -> tuple[Any, Any]:
        import boto3

        options = {"endpoint_url": self.moto.endpoint, "region_name": REGION}
        return boto3.client("s3", **options), boto3.client("sqs", **options)

    def network(self, host: int) -> list[SilentProxy]:
        """Everything that a host reaches others through. Spark is not behind it."""
        found = [self.index_proxies[host], self.store_proxies[host], self.queue_proxies[host]]
        return [*found, self.kafka_proxy] if host and self.kafka_proxy is not None else found

    def close(self) -> None:
        self._stack.close()

    def _stop_kafka(self) -> None:
        if self.kafka._process is not None:
            self.kafka.freeze(False)
        self.kafka.stop()

    def _stop_postgres(self) -> None:
        if self.postgres._process is not None:
            self.postgres.freeze(False)
        self.postgres.stop()
