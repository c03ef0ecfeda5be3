"""Killing boxer and ingest at each of their crash points: afterwards a clean run must find every row, once.

`make faults` runs this file: it prints a line for each cell of bus, point and signal, and fails if one does not hold.
`python -m tests.faults.ingest kafka` runs the cells whose line holds that word.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from lakerunner.formats.read import read_object
from lakerunner.model.errors import LakeError
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS
from tests.components.kafka import KafkaBroker, kafka_jars
from tests.components.postgres import PostgresServer
from tests.pipeline.lake import Lake, otlp, settings_of

ROOT = Path(__file__).parents[2]
OBJECTS, ROWS = 4, 60

BOXER_POINTS = ("boxer_before_bundle", "boxer_after_bundle", "boxer_before_bus_commit:3")
DRIVER_POINTS = (
    "before_commit",
    "after_commit",
    "ingest_before_bus_commit:2",
    "ingest_after_bus_commit:2",
)
#: These end a Python worker of Spark; its driver is then killed while it tries again.
TASK_POINTS = ("ingest_after_read", "ingest_after_write")


class RoleProcess:
    """A role that may be armed with a crash point. Killed with all its children when the block ends."""

    def __init__(self, lake: Lake, name: str, crash_point: str = "") -> None:
        self.log_path = Path(tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=lake.settings.data.dir)[1])
        env = {key: value for key, value in os.environ.items() if not key.startswith("LAKERUNNER_")}
        env |= lake.env() | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        # A point in a task kills every attempt: the message must live until the driver is killed too.
        env["LAKERUNNER_BUS_MAX_ATTEMPTS"] = "1000"
        if crash_point:
            env["LAKERUNNER_CRASH_POINT"] = crash_point
        with self.log_path.open("wb") as log:
            command = [sys.executable, "-m", "tests.pipeline.run_role", name]
            self.process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log)

    def __enter__(self) -> RoleProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.log_path.unlink(missing_ok=True)

    @property
    def is_dead(self) -> bool:
        return self.process.poll() is not None

    def said(self, text: str) -> bool:
        return text in self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """As a power cut would end it. Java and its workers must notice by themselves."""
        children = [] if self.is_dead else psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(20)
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not alive, f"outlived their driver: {alive}"


def until(holds: Callable[[], bool], what: str, timeout_s: float = 240.0) -> None:
    """Wait for it. Long, because a Spark session may take a minute to start on a machine that is busy with tests."""
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)


@contextmanager
def relaying(lake: Lake) -> Iterator[None]:
    """The relay beside the roles."""
    over = threading.Event()

    def relay() -> None:
        while not over.wait(0.05):
            try:
                lake.relay()
            except LakeError:
                continue

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def put_objects(lake: Lake, kind: Signal) -> int:
    for seed in range(OBJECTS):
        lake.put(kind, otlp(kind, ROWS, seed))
    return OBJECTS


def nothing_waits(lake: Lake) -> bool:
    return not {"seen", "bundled"} & lake.states().keys()


def crash_boxer(lake: Lake, point: str) -> None:
    with RoleProcess(lake, "boxer-ingest", point) as victim:
        until(lambda: victim.is_dead, f"boxer dies at {point}")
        assert victim.process.returncode == -signal.SIGKILL, victim.log_path.read_text()[-2000:]


def crash_ingest(lake: Lake, point: str) -> None:
    """Objects are bundled cleanly; the ingest role dies over them."""
    with RoleProcess(lake, "boxer-ingest"):
        until(lambda: "seen" not in lake.states(), "all bundled")
    with RoleProcess(lake, "ingest", point) as victim:
        if point in TASK_POINTS:
            until(lambda: victim.said("spark job failed"), f"a task dies at {point}")
            assert not victim.is_dead
            victim.kill()
        else:
            until(lambda: victim.is_dead, f"ingest dies at {point}")
            assert victim.process.returncode == -signal.SIGKILL, victim.log_path.read_text()[-2000:]


def check_exact(lake: Lake, kind: Signal) -> str:
    """Ledger, index and files agree, and the rows are those that were sent, each once. Returns the figures."""
    sent = pa.concat_tables([read_object(otlp(kind, ROWS, seed), kind).tables[""] for seed in range(OBJECTS)])
    assert lake.states() == {"done": OBJECTS}, lake.states()
    in_ledger, in_files = lake.ledger_rows(kind), lake.row_count(kind)
    figures = f"sent {sent.num_rows} ledger {in_ledger} stored {in_files}"
    assert in_ledger == in_files == sent.num_rows, figures
    assert _identities(lake.rows(kind), kind) == _identities(sent, kind), "other rows than were sent"
    return figures


def _identities(table: pa.Table, kind: Signal) -> list[tuple[str, ...]]:
    names = [name for name in ("trace_id", "span_id", "tid", kind.time_column) if name in table.column_names]
    return sorted(zip(*(table.column(name).cast(pa.string()).to_pylist() for name in names), strict=True))


def recover(lake: Lake) -> None:
    """A clean run of both roles until nothing waits."""
    with RoleProcess(lake, "boxer-ingest"), RoleProcess(lake, "ingest"):
        until(lambda: nothing_waits(lake), "a clean run ends all")


def run_cell(server: PostgresServer, point: str, kind: Signal, brokers: str = "") -> str:
    url = server.new_database()
    with tempfile.TemporaryDirectory(prefix="lakerunner-faults-", ignore_cleanup_errors=True) as folder:
        lake = Lake(settings_of(url, Path(folder), brokers))
        try:
            with relaying(lake):
                put_objects(lake, kind)
                (crash_boxer if point in BOXER_POINTS else crash_ingest)(lake, point)
                recover(lake)
            return check_exact(lake, kind)
        finally:
            lake.close()
            server.drop_database(url)


@contextmanager
def servers() -> Iterator[tuple[PostgresServer, str]]:
    """PostgreSQL, and the address of a Kafka broker; "" where there can be none."""
    with (
        tempfile.TemporaryDirectory(prefix="lakerunner-faults-", ignore_cleanup_errors=True) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        # PostgreSQL runs as a user of its own when we are root.
        folder.chmod(0o755)
        server = PostgresServer(folder)
        server.start()
        stack.callback(server.stop)
        brokers = ""
        try:
            broker = KafkaBroker(kafka_jars(), folder / "kafka")
        except pytest.skip.Exception as reason:
            print(f"skipped Kafka: {reason}", flush=True)  # noqa: T201
        else:
            broker.start()
            stack.callback(broker.stop)
            brokers = broker.brokers
        yield server, brokers


def cells(brokers: str) -> Iterator[tuple[str, str, Signal]]:
    """Bus, point and signal. On Kafka the signals take turns, since they share all that differs there."""
    points = (*BOXER_POINTS, *DRIVER_POINTS, *TASK_POINTS)
    for point in points:
        for kind in SIGNALS:
            yield "", point, kind
    if brokers:
        for number, point in enumerate(points):
            yield brokers, point, SIGNALS[number % len(SIGNALS)]


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    failures = 0
    with servers() as (server, brokers):
        for bus, point, kind in cells(brokers):
            name = f"{'kafka' if bus else 'postgres':8} {point:28} {kind!s:8}"
            if wanted not in name:
                continue
            started = time.monotonic()
            try:
                found, verdict = run_cell(server, point, kind, bus), "ok"
            except (AssertionError, LakeError) as error:
                found, verdict = str(error), "FAILED"
                failures += 1
            print(f"{verdict:6} {name} {found} ({time.monotonic() - started:.0f} s)", flush=True)  # noqa: T201
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
