"""A real Spark cluster on loopback: a standalone master and workers, from pyspark's jars, which can be lost."""

from __future__ import annotations

import contextlib
import os
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from lakerunner.pipeline.spark.session import _java_home
from lakerunner.runtime.java import find_java
from tests.components.process import RunningProcess, free_port

_HOME = Path(pyspark.__file__).parent
_ROOT = Path(__file__).parents[2]
_DAEMON = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dspark.master.rest.enabled=false"


class SparkCluster:
    """Every worker offers cores and memory for small executors. A master that starts again has forgotten everything."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "512m") -> None:
        self._folder = folder
        self._port = free_port()
        self._size = ["--cores", str(cores), "--memory", memory]
        self.master = f"spark://127.0.0.1:{self._port}"
        #: Where each worker keeps the logs of its executors.
        self.work_folders = tuple(folder / f"spark-work-{number}" for number in range(workers))
        self._master: RunningProcess | None = None
        self._workers: list[RunningProcess] = []
        self._env = {
            "SPARK_HOME": str(_HOME),
            "JAVA_HOME": str(_java_home(find_java())),
            # Executors inherit the workers' environment: the package must be importable there.
            "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT), sysconfig.get_path("purelib")]),
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_DAEMON} -Djava.io.tmpdir={folder}",
            # Whoever is killed leaves folders behind: here they go with everything else. Executors use it too.
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

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

    def start(self) -> None:
        self._master = self._daemon("master.Master", "spark-master.log", "--port", str(self._port))
        self._master.wait_for_port("127.0.0.1", self._port, 60)
        for path in self.work_folders:
            work = [self.master, *self._size, "--work-dir", str(path)]
            self._workers.append(self._daemon("worker.Worker", f"{path.name}.log", *work))

    def kill(self) -> None:
        """Kill master, workers and executors, as a power cut would."""
        for process in self.executor_processes():
            process.kill()
        for daemon in [*self._workers, *([self._master] if self._master else [])]:
            daemon.kill()
        self._master, self._workers = None, []

    def restart_master(self) -> None:
        """Kill the master alone, and start another at its address."""
        assert self._master is not None
        self._master.kill()
        self._master = self._daemon("master.Master", "spark-master.log", "--port", str(self._port))
        self._master.wait_for_port("127.0.0.1", self._port, 60)

    def executor_processes(self) -> list[psutil.Process]:
        """The Java processes of the executors that run now."""
        found = []
        for worker in self._workers:
            children: list[psutil.Process] = []
            with contextlib.suppress(psutil.Error):
                children = psutil.Process(worker.pid).children()
            for each in children:
                # One that ends meanwhile hides no other.
                with contextlib.suppress(psutil.Error):
                    if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
                        found.append(each)
        return found

    def worker_pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def driver_ports(self) -> set[int]:
        """Where the drivers of the executors that run now wait for them."""
        found = set()
        for executor in self.executor_processes():
            with contextlib.suppress(psutil.Error):
                words = executor.cmdline()
                found.add(int(words[words.index("--driver-url") + 1].rpartition(":")[2]))
        return found

    def stop(self) -> None:
        for daemon in [*self._workers, *([self._master] if self._master else [])]:
            daemon.stop()
        self._master, self._workers = None, []

    def _daemon(self, name: str, log: str, *arguments: str) -> RunningProcess:
        here = ["--host", "127.0.0.1", "--webui-port", "0"]
        argv = [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments, *here]
        return RunningProcess.start(argv, log_path=self._folder / log, env=self._env)


@contextmanager
def running_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    cluster = SparkCluster(folder, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
