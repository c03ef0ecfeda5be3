"""Running tasks as one Spark job: descriptions go out with the function, results come back as rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from lakerunner.model.errors import Bug, Unavailable
from lakerunner.runtime.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

_SCHEMA = "number long, result binary"
_ARROW_SCHEMA = pa.schema([("number", pa.int64()), ("result", pa.binary())])


class _Partition(Generic[Task, Result]):
    """The function of a partition: partition n does task n. Pickled by name, so workers need this package."""

    def __init__(self, run: Callable[[Task], Result], tasks: Sequence[Task]) -> None:
        self._run = run
        self._tasks = tasks

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(self._run(self._tasks[number]))
                yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]}, schema=_ARROW_SCHEMA)


def run_tasks(spark: SparkSession, pool: str, run: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """The results in the order of the tasks. Unavailable when a task died; a Bug when the session did.

    Each task is a partition of its own, so that Spark spreads them over all cores it has.
    """
    if not tasks:
        return []
    count = len(tasks)
    try:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        frame = spark.range(0, count, 1, count).mapInArrow(_Partition(run, tasks), _SCHEMA)
        rows = frame.collect()
    except (PySparkException, Py4JError, OSError) as error:
        if not is_alive(spark):
            raise Bug("cannot go on: the Java process of the Spark session is gone") from None
        reason = _first_line(error)
        log().warning("spark job failed", tasks=count, reason=reason)
        raise Unavailable(f"cannot finish a Spark job: {reason}") from None
    results: dict[int, Any] = {row["number"]: pickle.loads(bytes(row["result"])) for row in rows}
    return [results[number] for number in range(count)]


def is_alive(spark: SparkSession) -> bool:
    """Whether Java answers and its context is not stopped."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


def _first_line(error: Exception) -> str:
    """The reason without the stack traces of two languages."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if "Exception" in line or "Error" in line or "crashed" in line]
    return (telling or lines or ["no reason given"])[-1 if telling else 0][:300]
