"""Two processes of a singleton role: one leads, the other stands by and takes over when the leader is killed."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lakerunner.index import leases
from lakerunner.index.database import Database
from lakerunner.index.leases import Lease
from lakerunner.index.singleton import SingletonRole
from lakerunner.model.errors import Unavailable
from lakerunner.runtime.settings import BusSettings, IndexSettings, Settings
from lakerunner.runtime.stop import Stop
from tests.components.postgres import PostgresServer
from tests.components.process import free_port
from tests.faults.clean_roles import until

ROOT = Path(__file__).parents[2]
SESSION_TIMEOUT_S = BusSettings().session_timeout_s


class Candidate:
    def __init__(self, url: str) -> None:
        self.port = free_port()
        env = {name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")}
        env |= {
            "PYTHONPATH": str(ROOT / "src"),
            "LAKERUNNER_INDEX_URL": url,
            "LAKERUNNER_HTTP_PORT": str(self.port),
        }
        command = [sys.executable, "-m", "lakerunner", "sweeper"]
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)

    def get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            return ""

    @property
    def ready(self) -> bool:
        return '"ready":true' in self.get("/readyz")

    @property
    def leads(self) -> bool:
        return re.search(r'lakerunner_role_leader\{role="sweeper"\} 1\.0', self.get("/metrics")) is not None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def pair(database_url: str) -> Iterator[tuple[Candidate, Candidate]]:
    with ExitStack() as stack:
        candidates = []
        for _ in range(2):
            candidate = Candidate(database_url)
            stack.callback(candidate.close)
            candidates.append(candidate)
        yield candidates[0], candidates[1]


def await_leader(*candidates: Candidate, timeout_s: float) -> Candidate:
    end = time.monotonic() + timeout_s
    while True:
        leaders = [candidate for candidate in candidates if candidate.leads]
        if len(leaders) == 1 and all(candidate.ready for candidate in candidates):
            return leaders[0]
        assert len(leaders) < 2, "two lead at once"
        assert time.monotonic() < end, "nobody leads"
        time.sleep(0.1)


def token(database: Database) -> int:
    with database.transaction() as tx:
        row = tx.execute("SELECT token FROM lease WHERE name = 'sweeper'").fetchone()
    assert row is not None
    return int(row["token"])


def holders(database: Database) -> int:
    with database.transaction() as tx:
        found = len(leases.holders(tx))
    assert found < 2
    return found


def test_the_leader_killed_the_other_takes_over(pair: tuple[Candidate, Candidate], database: Database) -> None:
    leader = await_leader(*pair, timeout_s=40)
    other = pair[1] if leader is pair[0] else pair[0]
    first = token(database)
    leader.process.kill()
    leader.process.wait()
    assert await_leader(other, timeout_s=SESSION_TIMEOUT_S * 2) is other
    assert token(database) > first


def test_the_leader_stopped_hands_over_at_once(pair: tuple[Candidate, Candidate], database: Database) -> None:
    leader = await_leader(*pair, timeout_s=40)
    other = pair[1] if leader is pair[0] else pair[0]
    leader.process.send_signal(signal.SIGTERM)
    assert leader.process.wait(20) == 0
    # Released, the lease need not run out: one look of the one who stands by is enough.
    assert await_leader(other, timeout_s=SESSION_TIMEOUT_S) is other


def test_a_leader_that_sleeps_through_its_lease_stops_leading(
    pair: tuple[Candidate, Candidate], database: Database
) -> None:
    leader = await_leader(*pair, timeout_s=40)
    other = pair[1] if leader is pair[0] else pair[0]
    first = token(database)
    os.kill(leader.process.pid, signal.SIGSTOP)
    assert await_leader(other, timeout_s=SESSION_TIMEOUT_S * 2) is other
    os.kill(leader.process.pid, signal.SIGCONT)
    end = time.monotonic() + 20
    while leader.leads:
        assert time.monotonic() < end, "it still believes that it leads"
        time.sleep(0.1)
    assert token(database) > first
    # On busy cores the lease may run out before it is renewed; then nobody holds it for a moment.
    until(lambda: holders(database) == 1, "the lease is held")


class Leading(SingletonRole):
    """Leads without doing anything."""

    name = "relay"
    sentence = "Lead."

    def __init__(self, url: str) -> None:
        super().__init__(Settings(index=IndexSettings(url=url), bus=BusSettings(session_timeout_s=1.0)))
        self.leads = threading.Event()
        self._stop = Stop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def lead(self, lease: Lease, until: Stop) -> None:
        self.leads.set()
        while not until:
            until.wait(1.0)

    def _run(self) -> None:
        while not self._stop:
            with suppress(Unavailable):
                self.run(self._stop)

    def close(self) -> None:
        self._stop.request()
        self._thread.join()
        super().close()


def test_a_leader_whose_host_vanished_is_succeeded(postgres_server: PostgresServer, database_url: str) -> None:
    with postgres_server.behind_proxy(database_url) as (proxy, url), ExitStack() as stack:
        leader = Leading(url)
        stack.callback(leader.close)
        assert leader.leads.wait(20)
        # In the middle of a renewal, which locks the lease until it commits.
        tx = stack.enter_context(leader.database.transaction())
        tx.execute("SELECT FROM lease WHERE name = 'relay' FOR UPDATE")
        proxy.silence()
        other = Leading(database_url)
        stack.callback(other.close)
        try:
            assert other.leads.wait(20)
        finally:
            proxy.resume()
        with suppress(Unavailable):
            stack.close()
