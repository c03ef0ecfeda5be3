"""Memory: what a worker does when it has too much of it, and what a query may hold."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest

from lakerunner.model.errors import LimitHit, Unavailable
from lakerunner.ops import child as child_module
from lakerunner.ops.child import Child
from lakerunner.query.fanout.budget import Budgets
from lakerunner.query.fanout.protocol import Kind, ScanRequest
from lakerunner.query.plan.leaf import Leaf
from lakerunner.query.worker.memory_watch import MemoryWatch
from lakerunner.runtime.exit_code import EXIT_RECYCLED
from lakerunner.runtime.retry import Backoff
from lakerunner.runtime.settings import QuerySettings

QUERY = QuerySettings(worker_memory_bytes=100, worker_max_memory_bytes=200, worker_memory_patience_s=10.0)


def _request(query_id: uuid.UUID, max_bytes: int = 100) -> ScanRequest:
    return ScanRequest(
        org_id=uuid.uuid4(),
        query_id=query_id,
        segments=(),
        deadline_s=time.monotonic() + 60,
        max_bytes=max_bytes,
        kind=Kind.SAMPLES,
        leaf=Leaf.of_samples((), 0, 1),
    )


def _go_on() -> None:
    pass


class _Workers:
    def __init__(self) -> None:
        self.forgotten = 0
        self.budgets = Budgets()

    def forget(self) -> None:
        self.forgotten += 1


class _Watched:
    def __init__(self) -> None:
        self.used, self.now, self.workers = 0, 0.0, _Workers()
        self.watch = MemoryWatch(QUERY, self.workers, lambda: self.used, lambda: self.now)  # type: ignore[arg-type]

    def look(self, used: int, now: float) -> str:
        self.used, self.now = used, now
        return self.watch.look()


def test_caches_go_first_and_the_process_when_that_does_not_help() -> None:
    watched = _Watched()
    assert [watched.look(*at) for at in ((90, 0.0), (110, 1.0), (80, 2.0))] == ["", "", ""]
    assert watched.workers.forgotten == 1
    assert [watched.look(*at) for at in ((120, 3.0), (120, 12.9))] == ["", ""], "it has ten seconds to shrink"
    assert watched.workers.forgotten == 2
    assert "120 bytes are more than 100" in watched.look(120, 13.0)


def test_a_worker_above_its_hard_limit_stops_the_largest_query() -> None:
    watched = _Watched()
    budgets = watched.workers.budgets
    small, large = uuid.uuid4(), uuid.uuid4()
    with (
        budgets.opened(_request(small), _go_on) as modest,
        budgets.opened(_request(large), _go_on) as half,
        budgets.opened(_request(large), _go_on) as other_half,
    ):
        modest.settle(60)
        half.settle(50)
        other_half.settle(50)
        watched.look(201, 0.0)
        modest.look()
        for part in (half, other_half):
            with pytest.raises(LimitHit, match="this query holds most of them"):
                part.look()


def test_what_a_query_holds_counts_for_all_its_requests() -> None:
    budgets, query_id = Budgets(), uuid.uuid4()
    with budgets.opened(_request(query_id), _go_on) as first:
        first.settle(60)
        with budgets.opened(_request(query_id), _go_on) as second, budgets.opened(_request(uuid.uuid4()), _go_on) as of:
            second.look(40)
            with pytest.raises(LimitHit, match="more than 100 bytes"):
                second.look(41)
            of.look(100)
        second.settle(1_000)
        first.look(40)
        first.stop(Unavailable("first"))
        first.stop(Unavailable("second"))
        with pytest.raises(Unavailable, match="first"):
            first.look()
    assert budgets.held_bytes(query_id) == 0
    assert len(budgets) == 0 and not budgets._held_bytes


_MEASURED = """
import subprocess
import sys

from lakerunner.runtime.memory import limit_malloc_arenas, own_bytes, release_memory, resident_bytes

limit_malloc_arenas()
before = own_bytes()
block = bytearray(b"x") * 50_000_000
assert own_bytes() - before > 45_000_000
del block
release_memory()
assert own_bytes() - before < 20_000_000
assert resident_bytes() > own_bytes()
script = "import sys; x = bytearray(b'x') * 60_000_000; print(flush=True); sys.stdin.read()"
before = own_bytes()
with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
    process.stdout.readline()
    assert own_bytes() - before > 55_000_000
    process.communicate()
assert own_bytes(process.pid) == 0, "of a process that has ended, nothing is left"
"""


def test_memory_is_measured_with_that_of_children() -> None:
    """In a process of its own: that of the tests has other children, Spark among them, and freed memory to reuse."""
    subprocess.run([sys.executable, "-c", _MEASURED], check=True, timeout=60)


@pytest.fixture
def recycling_child() -> Iterator[Child]:
    script = f"import time; time.sleep(0.3); raise SystemExit({EXIT_RECYCLED})"
    child = Child("c", lambda: subprocess.Popen([sys.executable, "-c", script]), Backoff(30.0, 30.0))
    child.start()
    yield child
    child.kill()


def _watched_until(child: Child, pids: int) -> list[int | None]:
    """Exit codes told until so many processes have been seen, or for five seconds."""
    told, seen = [], set()
    end = time.monotonic() + 5
    while len(seen) < pids and time.monotonic() < end:
        told.append(child.watch())
        seen.add(child.pid)
        time.sleep(0.02)
    assert len(seen) == pids
    return told


def test_who_wants_to_be_started_anew_is_at_once(recycling_child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "SETTLED_S", 0.0)
    assert set(_watched_until(recycling_child, 4)) == {None}
    assert (recycling_child.recycles, recycling_child.restarts) == (3, 0)


def test_who_wants_it_as_soon_as_it_runs_is_held_back(recycling_child: Child) -> None:
    assert EXIT_RECYCLED in _watched_until(recycling_child, 2)
    end = time.monotonic() + 2
    while time.monotonic() < end and recycling_child.watch() is None:
        time.sleep(0.02)
    pid = recycling_child.pid
    time.sleep(0.2)
    recycling_child.watch()
    assert recycling_child.pid == pid, "its second restart waits"
    assert recycling_child.recycles == 0
