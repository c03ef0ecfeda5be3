"""The stages as they should be, in threads of the test: what finishes the work that a victim left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from lakerunner.bus.contract import Consumer
from lakerunner.bus.relay import relay_once
from lakerunner.intake.loop import SourceLoop
from lakerunner.intake.record import Recorder
from lakerunner.model.errors import LakeError
from lakerunner.pipeline.boxer import Boxer
from lakerunner.pipeline.ingest.stage import INGEST, IngestRunner
from lakerunner.pipeline.stage import Runner, Stage
from lakerunner.pipeline.worker import Worker
from lakerunner.runtime.stop import Stop
from tests.faults.event_folder import EventFolder
from tests.pipeline.lake import OBJECT_TOPICS, WORK_TOPICS, Lake

Loop = Callable[[Stop], None]


@contextmanager
def beside(*loops: Loop) -> Iterator[None]:
    """Run the loops while the block runs. A loop that fails fails the block, and is the reason if both fail."""
    stop = Stop()
    failed: list[BaseException] = []

    def guarded(loop: Loop) -> None:
        try:
            loop(stop)
        except BaseException as error:  # noqa: BLE001  raised again by the thread that waits
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(loop,), daemon=True) for loop in loops]
    for thread in threads:
        thread.start()
    try:
        yield
    except AssertionError as error:
        if failed:
            raise failed[0] from error
        raise
    finally:
        stop.request()
        for thread in threads:
            thread.join(60)
    if failed:
        raise failed[0]


def until(holds: Callable[[], bool], what: str, timeout_s: float = 300.0, every_s: float = 0.05) -> None:
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(every_s)


def intake(lake: Lake, events: EventFolder) -> Loop:
    def run(stop: Stop) -> None:
        recorder = Recorder(lake.settings, lake.database)
        try:
            SourceLoop(events, recorder, lake.settings.intake.batch).run(stop)
        finally:
            recorder.close()

    return run


def relay(lake: Lake) -> Loop:
    def run(stop: Stop) -> None:
        while not stop.wait(0.02):
            try:
                relay_once(lake.database, lake.bus)
            except LakeError as error:
                if not error.retryable:
                    raise

    return run


def boxer(lake: Lake) -> Loop:
    def run(stop: Stop) -> None:
        with lake.consumer("boxer-ingest", *OBJECT_TOPICS) as consumer:
            Boxer(INGEST, lake.database, consumer, lake.settings.pipeline).run(stop)

    return run


def ingest(lake: Lake, runner: IngestRunner) -> Loop:
    def run(stop: Stop) -> None:
        with lake.consumer("ingest", *WORK_TOPICS) as consumer:
            work(INGEST, lake, consumer, runner, stop, attempts=3)

    return run


def work(
    stage: Stage[Any], lake: Lake, consumer: Consumer, runner: Runner[Any], stop: Stop, *, attempts: int = 5
) -> None:
    """A worker as its role runs it: with probes, which end the pause of a bucket that failed."""
    with beside(partial(_asked, runner)):
        Worker(stage, lake.database, consumer, lake.settings.pipeline, runner, attempts).run(stop)


def _asked(runner: Runner[Any], stop: Stop) -> None:
    while not stop.wait(1.0):
        for probe in runner.probes().values():
            with suppress(LakeError):
                probe()
