from __future__ import annotations

import os
import pickle
import signal
from typing import TYPE_CHECKING

import pytest

from lakerunner.model.errors import Unavailable
from lakerunner.pipeline.spark.job import Counted, is_alive, run_tasks
from lakerunner.store.requests import count_request, take_requests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def doubled(number: int) -> int:
    return 2 * number


def deadly(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def failing(number: int) -> int:
    raise ZeroDivisionError("a bug of ours")


def test_results_come_in_the_order_of_the_tasks(spark: SparkSession) -> None:
    assert run_tasks(spark, "p", doubled, list(range(9))) == [2 * number for number in range(9)]
    assert run_tasks(spark, "p", doubled, []) == []


def test_a_task_that_dies_fails_its_job_and_not_the_session(spark: SparkSession) -> None:
    with pytest.raises(Unavailable, match="cannot finish a Spark job"):
        run_tasks(spark, "p", deadly, [0, 1, 2])
    assert is_alive(spark)
    assert run_tasks(spark, "p", doubled, [4]) == [8]


def test_an_exception_is_told_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(Unavailable) as error:
        run_tasks(spark, "p", failing, [1])
    assert "ZeroDivisionError: a bug of ours" in str(error.value)
    assert "\n" not in str(error.value)


def test_requests_of_executors_are_counted_by_the_driver() -> None:
    take_requests()
    counted = pickle.loads(pickle.dumps(Counted(_asks_the_bucket)))
    result, requests = counted("00000000-0000-0000-0000-000000000007")
    assert (result, [tuple(each) for each in requests]) == (
        "done", [("00000000-0000-0000-0000-000000000007", "get", 1, 10)],
    )  # fmt: skip
    assert take_requests() == [], "they go with the result"


def _asks_the_bucket(org_id: str) -> str:
    count_request("get", [f"db/{org_id}/x"], 10)
    return "done"
