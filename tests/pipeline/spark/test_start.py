"""A session that starts in the background: the process does not wait, and says if it does not start."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from lakerunner.pipeline.spark import job
from lakerunner.pipeline.spark.job import SparkJobs
from lakerunner.pipeline.spark.session import SparkLost
from lakerunner.runtime.settings import SparkSettings


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_process_does_not_wait_and_says_that_spark_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    may_fail, again = threading.Event(), threading.Event()

    def refuses(*_: object) -> object:
        may_fail.wait(10.0)
        raise SparkLost("cannot start Spark at nowhere: no master")

    def replaces(_: object) -> None:
        again.set()

    monkeypatch.setattr(job, "spark_session", refuses)
    monkeypatch.setattr(SparkJobs, "_rebuild", replaces)
    jobs: SparkJobs[int, int] = SparkJobs("test", SparkSettings(), abs, 1)
    began_s = time.monotonic()
    jobs.start(0)
    assert time.monotonic() - began_s < 8.0
    # It still starts: there is nothing to complain of.
    jobs.probe()
    assert not jobs.is_paused()
    may_fail.set()
    until(jobs.is_paused)
    with pytest.raises(SparkLost, match="no master"):
        jobs.probe()
    # Another attempt has begun.
    assert again.wait(10.0)
