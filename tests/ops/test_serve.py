"""`serve` starts, survives kills and outages, and stops; nothing in bus or index is lost or duplicated."""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.index.database import Database
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.segments import live_segments
from lakerunner.index.status import index_status
from lakerunner.model.errors import Unavailable
from lakerunner.model.time import TimeRange
from lakerunner.ops.supervisor import is_ready
from tests.components.postgres import PostgresServer
from tests.ops.exercise import ORG, START_NS, send
from tests.ops.serve_process import ServeProcess, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

#: `make soak` kills more.
KILLS = 12
SEED = int(os.environ.get("LAKERUNNER_TEST_SEED", "20261115"))
OUTAGE_S = float(os.environ.get("LAKERUNNER_TEST_OUTAGE_S", "3"))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[ServeProcess]:
    serve = ServeProcess(tmp_path / "data")
    yield serve
    serve.close()


@pytest.fixture
def postgres_apart(tmp_path: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL server that `serve` does not supervise."""
    server = PostgresServer(tmp_path / "apart")
    (tmp_path / "apart").mkdir()
    server.start()
    yield server
    server.stop()


def await_done(database: Database, count: int, timeout_s: float = 60.0) -> None:
    """Wait until all objects are done and all messages published: by then any duplicate would exist."""
    end = time.monotonic() + timeout_s
    while True:
        status = index_status(database)
        assert status.objects is not None and status.outbox is not None
        if status.objects["done"] == count and status.outbox.count == 0:
            return
        assert time.monotonic() < end, f"of {count}: {status.objects}, outbox {status.outbox}"
        time.sleep(0.2)


def assert_exactly_once(database: Database, count: int) -> None:
    with database.transaction() as tx:
        segments = live_segments(tx, ORG, "logs", TimeRange(START_NS, START_NS + 1))
        published = tx.execute("SELECT count(*) AS n FROM outbox WHERE topic = 'boxer.logs.compact'").fetchone()
    assert sum(segment.row_count for segment in segments) == len(segments) == count
    assert published is not None and published["n"] == count
    status = index_status(database)
    assert status.objects == {"seen": 0, "bundled": 0, "done": count, "quarantined": 0}
    assert status.items == {"open": 0, "done": count, "stale": 0}


def test_a_role_killed_at_random_comes_back_and_nothing_is_lost_or_doubled(serve: ServeProcess) -> None:
    choice = random.Random(SEED)
    serve.start().await_all_ready()
    database = serve.database()
    roles = [address.name for address in serve.addresses()]
    sent = 0
    try:
        for kill in range(KILLS):
            names = [f"object-{sent + nth}" for nth in range(10)]
            send(database, names)
            send(database, names)
            sent += len(names)
            time.sleep(choice.uniform(0, 0.4))
            victim = choice.choice(roles)
            before = serve.pids()
            if kill == KILLS // 2:
                _kill_fork_server(serve)
            os.kill(before[victim], signal.SIGKILL)
            serve.await_all_ready()
            after = _await_new_pid(serve, victim, before[victim])
            unharmed = {name: pid for name, pid in before.items() if name != victim}
            assert {name: after[name] for name in unharmed} == unharmed, f"seed {SEED}, kill {kill} of {victim}"
        await_done(database, sent)
        assert_exactly_once(database, sent)
    finally:
        database.close()
    pids = [*serve.pids().values()]
    assert serve.terminate() == 0
    assert running(pids) == []


def _kill_fork_server(serve: ServeProcess) -> None:
    """No role may notice, and roles that die later come back all the same."""
    assert serve.process is not None
    (found,) = [
        pid
        for pid in _children(serve.process.pid)
        if b"lakerunner.ops.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(found, signal.SIGKILL)


def _await_new_pid(serve: ServeProcess, role: str, old: int) -> dict[str, int]:
    end = time.monotonic() + 30
    while (pids := serve.pids()).get(role, old) == old:
        assert time.monotonic() < end, f"{role} was not started again"
        time.sleep(0.05)
    serve.await_all_ready()
    return pids


def test_stopped_and_started_again_it_goes_on_with_the_same_data(serve: ServeProcess) -> None:
    serve.start().await_all_ready()
    database = serve.database()
    send(database, ["a", "b"])
    await_done(database, 2)
    database.close()
    assert serve.terminate() == 0
    serve.start().await_all_ready()
    database = serve.database()
    send(database, ["b", "c"])
    await_done(database, 3)
    assert_exactly_once(database, 3)
    database.close()


def test_postgresql_away_for_a_while_is_waited_out(tmp_path: Path, postgres_apart: PostgresServer) -> None:
    serve = ServeProcess(tmp_path / "data", LAKERUNNER_INDEX_URL=postgres_apart.new_database())
    database = Database(serve.env["LAKERUNNER_INDEX_URL"])
    try:
        serve.start().await_all_ready()
        send(database, [f"before-{n}" for n in range(50)])
        pids = serve.pids()
        postgres_apart.stop()
        _await_none_ready(serve)
        time.sleep(OUTAGE_S)
        postgres_apart.start()
        serve.await_all_ready()
        assert serve.pids() == pids, "no role had to die"
        send(database, [f"after-{n}" for n in range(50)])
        await_done(database, 100)
        assert_exactly_once(database, 100)
        assert serve.terminate() == 0
    finally:
        serve.close()
        database.close()


def test_postgresql_that_hangs_is_not_ready_and_is_waited_out(serve: ServeProcess) -> None:
    serve.start().await_all_ready()
    database = serve.database()
    send(database, [f"before-{n}" for n in range(50)])
    postmaster = EmbeddedPostgres(serve.data_dir).pid()
    assert postmaster is not None
    frozen = [*_children(postmaster), postmaster]
    for process in frozen:
        os.kill(process, signal.SIGSTOP)
    pids = serve.pids()
    try:
        _await_none_ready(serve)
    finally:
        for process in frozen:
            os.kill(process, signal.SIGCONT)
    serve.await_all_ready()
    assert serve.pids() == pids, "no role had to die"
    await_done(database, 50)
    assert_exactly_once(database, 50)
    database.close()


def test_postgresql_killed_is_started_again(serve: ServeProcess) -> None:
    serve.start().await_all_ready()
    database = serve.database()
    send(database, [f"before-{n}" for n in range(50)])
    postmaster = EmbeddedPostgres(serve.data_dir).pid()
    assert postmaster is not None
    os.kill(postmaster, signal.SIGKILL)
    _await_new_pid(serve, "postgres", postmaster)
    end = time.monotonic() + 30
    while True:
        try:
            send(database, [f"after-{n}" for n in range(50)])
            break
        except Unavailable:
            assert time.monotonic() < end
            time.sleep(0.2)
    await_done(database, 100)
    assert_exactly_once(database, 100)
    database.close()


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _await_none_ready(serve: ServeProcess) -> None:
    end = time.monotonic() + 30
    while any(is_ready(address) for address in serve.addresses()):
        assert time.monotonic() < end, "roles stayed ready without their database"
        time.sleep(0.2)


def test_roles_do_not_outlive_a_killed_supervisor(serve: ServeProcess) -> None:
    serve.start().await_all_ready()
    roles = [serve.pids()[address.name] for address in serve.addresses()]
    assert serve.process is not None
    serve.process.kill()
    serve.process.wait()
    end = time.monotonic() + 15
    while running(roles):
        assert time.monotonic() < end, "roles outlived their supervisor"
        time.sleep(0.1)
    # The next `serve` takes over the database that the killed one left running.
    serve.start().await_all_ready()
    assert serve.terminate() == 0


def test_a_second_serve_over_the_same_folder_is_refused(serve: ServeProcess) -> None:
    serve.start().await_all_ready()
    second = ServeProcess(serve.data_dir, module="lakerunner")
    second.start()
    assert second.process is not None
    assert second.process.wait(30) == 1
    serve.await_all_ready()
