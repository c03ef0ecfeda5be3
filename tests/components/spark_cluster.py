"""A real Spark cluster on loopback: a standalone master and workers, from pyspark's jars."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from lakerunner.pipeline.spark.session import _java_home
from lakerunner.runtime.java import find_java
from tests.components.process import RunningProcess, free_port

_HOME = Path(pyspark.__file__).parent
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class SparkCluster:
    master: str
    #: Where each worker keeps the logs of its executors.
    work_folders: tuple[Path, ...]

    @property
    def executors(self) -> list[Path]:
        """The folders of all executors that ever ran."""
        return [path for folder in self.work_folders for path in folder.glob("app-*/*") if path.is_dir()]

    @property
    def options(self) -> str:
        """Spark options for a driver on this machine: loopback, and small executors of one core."""
        return (
            "spark.driver.host=127.0.0.1 spark.driver.bindAddress=127.0.0.1 spark.executor.memory=512m"
            f" spark.executor.cores=1 spark.cores.max={len(self.work_folders)}"
        )


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    port = free_port()
    env = {
        "SPARK_HOME": str(_HOME),
        "JAVA_HOME": str(_java_home(find_java())),
        # Executors inherit the workers' environment: the package must be importable there.
        "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)]),
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    here = ["--host", "127.0.0.1", "--webui-port", "0"]

    def daemon(name: str, log: str, *arguments: str) -> RunningProcess:
        argv = [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments, *here]
        return RunningProcess.start(argv, log_path=folder / log, env=env)

    with ExitStack() as stack:
        master = stack.enter_context(daemon("master.Master", "spark-master.log", "--port", str(port)))
        master.wait_for_port("127.0.0.1", port, 60)
        address = f"spark://127.0.0.1:{port}"
        work = tuple(folder / f"spark-work-{number}" for number in range(workers))
        for path in work:
            size = ["--cores", "1", "--memory", "512m", "--work-dir", str(path)]
            stack.enter_context(daemon("worker.Worker", f"{path.name}.log", address, *size))
        yield SparkCluster(address, work)
