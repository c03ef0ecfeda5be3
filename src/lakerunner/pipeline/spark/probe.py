"""A probe job: do executors start, have the same Python and package as the driver, and reach the bucket?"""

from __future__ import annotations

import time
from dataclasses import dataclass

from lakerunner import __version__
from lakerunner.model.errors import LakeError, Missing, Unavailable
from lakerunner.pipeline.spark.job import SparkJobs, describe_executor
from lakerunner.pipeline.spark.options import is_cluster
from lakerunner.runtime.settings import Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

#: Enough that every executor of a small cluster gets one.
_TASKS = 8
MAX_CLOCK_SKEW_S = 2.0


@dataclass(frozen=True, slots=True)
class Executor:
    """What a task found where it ran."""

    host: str
    python: str
    lakerunner: str
    #: Why it does not reach the bucket; empty if it does.
    trouble: str
    #: What its clock said.
    now_s: float = 0.0


def look_around(bucket: StoreConfig) -> Executor:
    """The task."""
    about = describe_executor(None)
    try:
        open_store(bucket).ping()
        trouble = ""
    except LakeError as error:
        trouble = str(error)
    return Executor(about["host"], about["python"], about["lakerunner"], trouble, time.time())


def probe_spark(settings: Settings) -> str:
    """Run the probe job on a cluster and say what was found; raise with the fix if something is wrong."""
    if not is_cluster(settings.spark):
        return f"{settings.spark.master}: tasks run on this machine"
    jobs = SparkJobs("doctor", settings.spark, look_around, 1)
    began_s = time.time()
    try:
        found = set(jobs.run([StoreConfig.of(settings)] * _TASKS))
    except LakeError as error:
        raise Missing(
            f"cannot run a probe job at {settings.spark.master}: {error.message}",
            hint="check that master and workers run and have free cores, that they reach this host "
            "(spark.driver.host in spark.options), and that executors have the package (spark.package)",
        ) from None
    finally:
        jobs.close()
    ended_s = time.time()
    ours = describe_executor(None)
    for each in found:
        skew_s = max(began_s - each.now_s, each.now_s - ended_s)
        if skew_s > MAX_CLOCK_SKEW_S:
            raise Unavailable(
                f"cannot trust the clock of the executor on {each.host}: it differs by {skew_s:.1f} s",
                hint="run NTP there",
            )
        if each.python.split(".")[:2] != ours["python"].split(".")[:2] or each.lakerunner != __version__:
            raise Missing(
                f"cannot use the executor on {each.host}: it has Python {each.python} and lakerunner "
                f"{each.lakerunner}, and this process Python {ours['python']} and lakerunner {__version__}",
                hint="build the archive of `spark.package` with `lakerunner spark package`, here and now",
            )
        if each.trouble:
            raise Missing(
                f"cannot reach the bucket from the executor on {each.host}: {each.trouble}",
                hint="let executors have the credentials: see spark.pass_env",
            )
    hosts = sorted({each.host for each in found})
    return f"{settings.spark.master}: {_TASKS} tasks ran on {', '.join(hosts)} and reach the bucket"
