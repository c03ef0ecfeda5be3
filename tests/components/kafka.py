"""A real Kafka broker for tests: one KRaft node on loopback, from jars that Maven downloads once into the cache."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from cryptography import x509

from tests.components.certificates import issue
from tests.components.install_lock import install_lock
from tests.components.missing import missing
from tests.components.process import RunningProcess, free_port
from tests.components.silent_proxy import SilentProxy

VERSION = "4.3.1"
#: Who may use the secure listener.
USER, PASSWORD = "lake", "kafka-hush"
_CACHE = Path(__file__).parents[2] / ".cache" / "kafka"
_FETCH_TIMEOUT_S = 300
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lakerunner.tests</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


#: A tool that runs for a second takes 0.9 s of CPU time with these, and 1.5 without.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class KafkaBroker:
    """Broker and controller in one process. `stop` and `start` simulate an outage; acknowledged data survives."""

    def __init__(self, jars: Path, folder: Path, heap_mb: int = 256) -> None:
        self._heap = f"-Xmx{heap_mb}m"
        self._classpath = f"{jars}/*"
        self._folder = folder
        self._port = free_port()
        #: Clients that connect to the second listener are sent to the proxy's port, which stands before it.
        self._proxied_port, self._proxy_port = free_port(), free_port()
        self._secure_port = free_port()
        self._properties = folder / "server.properties"
        self._process: RunningProcess | None = None
        self._format(free_port())

    @property
    def brokers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def secure_brokers(self) -> str:
        """A listener that speaks TLS only, and asks for a user and a password."""
        return f"127.0.0.1:{self._secure_port}"

    @property
    def authority_path(self) -> Path:
        """The certificate of the authority that signed the broker's."""
        return self._folder / "authority.pem"

    @contextmanager
    def behind_proxy(self) -> Iterator[tuple[SilentProxy, str]]:
        """Yield a proxy before this broker, and the bootstrap address through it."""
        with SilentProxy(("127.0.0.1", self._proxied_port), self._proxy_port) as proxy:
            yield proxy, f"127.0.0.1:{self._proxy_port}"

    def start(self) -> None:
        self._process = RunningProcess.start(
            ["java", self._heap, "-XX:TieredStopAtLevel=1", "-cp", self._classpath, "kafka.Kafka", self._properties],
            log_path=self._folder / "kafka.log",
            cwd=self._folder,
        )
        self._process.wait_for_port("127.0.0.1", self._port, timeout_s=180.0)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(timeout_s=20.0)
            self._process = None

    def crash(self) -> None:
        """Kill the broker, as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def delete_topics(self, prefix: str) -> None:
        """Delete a test's topics: with a thousand partitions a broker takes long to restart."""
        admin = AdminClient({"bootstrap.servers": self.brokers})
        names = [name for name in admin.list_topics(timeout=10.0).topics if name.startswith(prefix)]
        for future in admin.delete_topics(names).values():
            future.result()

    def _format(self, controller_port: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},PROXIED://127.0.0.1:{self._proxied_port},"
            f"SECURE://127.0.0.1:{self._secure_port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port},PROXIED://127.0.0.1:{self._proxy_port},"
            f"SECURE://127.0.0.1:{self._secure_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,SECURE:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
            f'required user_{USER}="{PASSWORD}";',
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": self._keystore(),
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self._folder / "log",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1_000,
            "auto.create.topics.enable": "false",
            # A killed broker can register again only after its old session has expired.
            "broker.session.timeout.ms": 2_000,
            "broker.heartbeat.interval.ms": 500,
            # By default it takes half of the heap. A broker of many topics that is started again needs that itself.
            "log.cleaner.dedupe.buffer.size": 2 * 1024**2,
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        subprocess.run(
            ["java", *_SHORT_LIVED, "-cp", self._classpath, "kafka.tools.StorageTool", "format", "-t",
             uuid.uuid4().hex[:22], "-c", str(self._properties), "--standalone"],
            check=True, capture_output=True, cwd=self._folder,
        )  # fmt: skip

    def _keystore(self) -> Path:
        """The broker's key and certificates in one file."""
        authority = issue(self._folder, "authority")
        own = issue(self._folder, "broker", authority, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        store = self._folder / "keystore.pem"
        parts = (own.key_path, own.cert_path, authority.cert_path)
        store.write_text("".join(part.read_text() for part in parts))
        return store


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars, downloaded if absent. If that fails, the test is skipped, or fails in CI."""
    jars = _CACHE / VERSION
    with install_lock(_CACHE):
        return jars if jars.is_dir() else _fetch(jars)


def _fetch(jars: Path) -> Path:
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            _unavailable(f"{tool} is not on PATH")
    _CACHE.mkdir(parents=True, exist_ok=True)
    part = _CACHE / f"{VERSION}.part-{uuid.uuid4().hex}"
    part.mkdir()
    (part / "pom.xml").write_text(_POM)
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"],
            cwd=part, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode != 0:
            _unavailable(f"mvn failed: {done.stdout.strip()[:300]}")
        # Rename the complete folder: an interrupted download is never used.
        if not jars.is_dir():
            (part / "jars").rename(jars)
    except subprocess.TimeoutExpired:
        _unavailable(f"mvn took more than {_FETCH_TIMEOUT_S} s")
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return jars


def _unavailable(reason: str) -> None:
    message = f"cannot run Kafka {VERSION}: {reason}"
    missing(message)
