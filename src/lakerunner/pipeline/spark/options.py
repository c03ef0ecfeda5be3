"""What a Spark session is told: our choices for one machine or a cluster, the environment of executors, the user's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from lakerunner.pipeline.spark import daemon
from lakerunner.runtime.memory import is_address_space_limited
from lakerunner.runtime.options import parse_options
from lakerunner.runtime.settings import SparkSettings

_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
#: The folder that an executor unpacks the archive of `spark.package` into, in its own working folder.
_UNPACKED = "lakerunner-env"
#: The interpreter in that archive, as executors call it.
PACKED_PYTHON = f"./{_UNPACKED}/bin/python"
#: Where address space is limited (`ulimit -v`): each arena of the C library takes 64 MiB of it, and Arrow's own pool
#: reserves a GiB.
_LEAN = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
#: Java reserves address space for classes and compiled code: a GiB and more, of which a driver uses 100 MB.
_LEAN_JAVA = "-XX:CompressedClassSpaceSize=128m -XX:ReservedCodeCacheSize=64m"


def is_cluster(settings: SparkSettings) -> bool:
    """Whether executors are other processes than the driver."""
    return not settings.master.startswith("local") or settings.master.startswith("local-cluster")


def session_options(settings: SparkSettings, keep_executor: bool = False, preload: str = "") -> dict[str, str]:
    """Our choices, then the user's, which win. With `keep_executor`, one executor of a cluster stays while idle.

    On this machine, Python workers share what the module `preload` imports.
    """
    options = {
        "spark.master": settings.master,
        "spark.app.name": "lakerunner",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.driver.memory": settings.memory,
        # Python does the work, so Java's second compiler would never pay back: without it a session starts for half the
        # CPU time (7.9 s instead of 15.4 s until the first job is done, measured 2026-11).
        # Java asks neither HOME nor TMPDIR, which the surroundings may have moved.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()} -XX:+UseSerialGC"
        f" -XX:TieredStopAtLevel=1 {_LEAN_JAVA}"
        f' "-Duser.home={Path.home()}" "-Djava.io.tmpdir={tempfile.gettempdir()}"',
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # Rows that describe work are few: without adaptive planning a small job starts sooner.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        # A task says itself what went wrong, so that trying it again is decided with the item, not here.
        "spark.task.maxFailures": "1",
        **{f"spark.executorEnv.{name}": value for name, value in executor_environment(settings, os.environ).items()},
    }
    if is_cluster(settings):
        options |= _cluster_options(settings, keep_executor)
    else:
        # Nobody else has business with the ports of a session on this machine.
        options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        if preload:
            options |= {"spark.python.daemon.module": daemon.__name__, f"spark.executorEnv.{daemon.PRELOAD}": preload}
    return options | parse_options(settings.options, "spark.options", "spark.")


def _cluster_options(settings: SparkSettings, keep_executor: bool) -> dict[str, str]:
    executors = max(1, settings.max_cores // settings.executor_cores)
    options = {
        "spark.cores.max": str(settings.max_cores),
        "spark.executor.cores": str(settings.executor_cores),
        "spark.executor.memory": settings.executor_memory,
        "spark.executor.memoryOverhead": settings.python_memory,
        "spark.executor.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {_LEAN_JAVA}",
        # Sessions of many processes share a cluster: without this, the first would keep all of it.
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1" if keep_executor else "0",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.maxExecutors": str(executors),
        "spark.dynamicAllocation.executorIdleTimeout": "60s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
        # A host that is silent, without closing connections, is noticed within a minute.
        "spark.executor.heartbeatInterval": "5s",
        "spark.network.timeout": "60s",
    }
    if settings.package:
        options["spark.archives"] = f"{settings.package}#{_UNPACKED}"
    return options


def executor_environment(settings: SparkSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that executors get: those that are to be passed on, and those that keep their memory small."""
    wanted = settings.pass_env.split()
    passed = {name: value for name, value in environment.items() if any(fnmatchcase(name, each) for each in wanted)}
    return (_LEAN if is_address_space_limited() else {}) | passed
