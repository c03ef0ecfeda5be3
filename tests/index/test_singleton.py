"""Two processes of a singleton role: one leads, the other stands by and takes over when the leader is killed."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakerunner.index import leases
from lakerunner.index.database import Database
from lakerunner.index.singleton import SingletonRole
from tests.components.process import free_port

ROOT = Path(__file__).parents[2]


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


def test_the_leader_killed_the_other_takes_over(pair: tuple[Candidate, Candidate], database: Database) -> None:
    leader = await_leader(*pair, timeout_s=40)
    other = pair[1] if leader is pair[0] else pair[0]
    first = token(database)
    leader.process.kill()
    leader.process.wait()
    assert await_leader(other, timeout_s=SingletonRole.lease_ttl_s * 3) is other
    assert token(database) > first


def test_the_leader_stopped_hands_over_at_once(pair: tuple[Candidate, Candidate], database: Database) -> None:
    leader = await_leader(*pair, timeout_s=40)
    other = pair[1] if leader is pair[0] else pair[0]
    leader.process.send_signal(signal.SIGTERM)
    assert leader.process.wait(20) == 0
    # Released, the lease need not run out: one look of the one who stands by is enough.
    assert await_leader(other, timeout_s=SingletonRole.lease_ttl_s) is other


def test_a_leader_that_sleeps_through_its_lease_stops_leading(
    pair: tuple[Candidate, Candidate], database: Database
) -> None:
    leader = await_leader(*pair, timeout_s=40)
    other = pair[1] if leader is pair[0] else pair[0]
    first = token(database)
    os.kill(leader.process.pid, signal.SIGSTOP)
    assert await_leader(other, timeout_s=SingletonRole.lease_ttl_s * 3) is other
    os.kill(leader.process.pid, signal.SIGCONT)
    end = time.monotonic() + 20
    while leader.leads:
        assert time.monotonic() < end, "it still believes that it leads"
        time.sleep(0.1)
    assert token(database) > first
    with database.transaction() as tx:
        assert len(leases.holders(tx)) == 1
