"""A role's life: starting, ready, not ready, draining; and its exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROLE = """
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from lakerunner.model.errors import BadInput, Unavailable
from lakerunner.runtime.role import Probe, Role
from lakerunner.runtime.run import run_role
from lakerunner.runtime.settings.load import load_settings
from lakerunner.runtime.stop import Stop
import os

FLAGS = Path(sys.argv[1])

class Toy(Role):
    name = "toy"
    sentence = "A role for tests."
    def start(self) -> None:
        if (FLAGS / "hopeless").exists():
            raise BadInput("cannot start: it is hopeless", hint="give up")
        self._ping()
    def run(self, stop: Stop) -> None:
        if (FLAGS / "buggy").exists():
            raise Unavailable("cannot run now")
        while not stop.wait(0.05):
            pass
        while (FLAGS / "busy").exists():
            time.sleep(0.05)
        (FLAGS / "drained").touch()
    def probes(self) -> Mapping[str, Probe]:
        return {"thing": self._ping, "cache": self._cache}
    def patience_s(self) -> Mapping[str, float]:
        return {"cache": 2.0}
    def _cache(self) -> None:
        if (FLAGS / "cold").exists():
            raise Unavailable("cannot reach the cache")
        if (FLAGS / "odd").exists():
            raise RuntimeError("nobody expected this")
        while (FLAGS / "frozen").exists():
            time.sleep(0.05)
    def _ping(self) -> None:
        if (FLAGS / "down").exists():
            raise Unavailable("cannot reach the thing", hint="start it")
    def close(self) -> None:
        (FLAGS / "closed").touch()

sys.exit(run_role(Toy, load_settings(env=os.environ)))
"""


class Toy:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        script = folder / "role.py"
        script.write_text(ROLE)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LAKERUNNER_HTTP_PORT": str(port)}
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder)], env=env, stderr=subprocess.PIPE, text=True
        )

    def get(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.code, answer.read()

    def await_ready(self, wanted: bool, timeout_s: float = 20.0) -> dict[str, object]:
        end = time.monotonic() + timeout_s
        while True:
            try:
                status, body = self.get("/readyz")
                if (status == 200) == wanted:
                    return dict(json.loads(body))
            except (urllib.error.URLError, ConnectionError):
                pass
            assert time.monotonic() < end, "the role did not become as wanted in time"
            time.sleep(0.05)

    def stop(self) -> tuple[int, list[str]]:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=15)
        return self.process.returncode, errors.splitlines()


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def toy(flags: Path, free_port: int) -> Iterator[Toy]:
    role = Toy(flags, free_port)
    yield role
    if role.process.poll() is None:
        role.process.kill()
    role.process.communicate()


def test_from_ready_to_drained(toy: Toy, flags: Path) -> None:
    assert toy.await_ready(True)["checks"] == {"thing": "ok", "cache": "ok"}
    assert toy.get("/livez") == (200, b"ok\n")
    assert json.loads(toy.get("/healthz")[1])["phase"] == "running"
    assert b'lakerunner_role_ready{role="toy"} 1.0' in toy.get("/metrics")[1]
    code, _ = toy.stop()
    assert code == 0
    assert (flags / "drained").exists()
    assert (flags / "closed").exists()


def test_ready_means_that_its_dependencies_answer(toy: Toy, flags: Path) -> None:
    toy.await_ready(True)
    (flags / "down").touch()
    assert toy.await_ready(False)["checks"] == {
        "thing": "cannot reach the thing; start it",
        "cache": "ok",
    }
    assert toy.get("/livez")[0] == 200
    (flags / "down").unlink()
    toy.await_ready(True)


def test_it_is_ready_but_degraded_while_it_can_do_without(toy: Toy, flags: Path) -> None:
    assert toy.await_ready(True)["degraded"] is False
    (flags / "cold").touch()
    end = time.monotonic() + 10
    while not (health := json.loads(toy.get("/readyz")[1]))["degraded"]:
        assert health["ready"], "it was not ready in between"
        assert time.monotonic() < end, "it does not notice"
        time.sleep(0.05)
    assert health["checks"] == {"thing": "ok", "cache": "cannot reach the cache"}
    document = toy.await_ready(False)
    assert document["degraded"] is False, "its patience has an end"
    (flags / "cold").unlink()
    toy.await_ready(True)


def test_a_probe_that_hangs_blames_no_other_dependency(toy: Toy, flags: Path) -> None:
    toy.await_ready(True)
    (flags / "frozen").touch()
    checks = toy.await_ready(False)["checks"]
    assert checks == {"thing": "ok", "cache": "no answer for 8 s"}
    (flags / "frozen").unlink()
    toy.await_ready(True)


def test_a_probe_that_fails_unexpectedly_is_tried_again(toy: Toy, flags: Path) -> None:
    toy.await_ready(True)
    (flags / "odd").touch()
    checks = toy.await_ready(False)["checks"]
    assert checks == {"thing": "ok", "cache": "cannot be asked: RuntimeError: nobody expected this"}
    (flags / "odd").unlink()
    toy.await_ready(True)


def test_it_is_not_ready_but_listens_while_it_drains(toy: Toy, flags: Path) -> None:
    toy.await_ready(True)
    (flags / "busy").touch()
    toy.process.send_signal(signal.SIGTERM)
    document = toy.await_ready(False)
    assert document["phase"] == "draining"
    assert toy.get("/livez")[0] == 200
    (flags / "busy").unlink()
    assert toy.stop()[0] == 0


def test_a_dependency_that_is_down_at_the_start_is_waited_for(flags: Path, free_port: int) -> None:
    (flags / "down").touch()
    role = Toy(flags, free_port)
    try:
        end = time.monotonic() + 20
        while "start it" not in str(role.await_ready(False)["checks"]):
            assert time.monotonic() < end, "the reason is not told"
            time.sleep(0.05)
        assert role.await_ready(False)["phase"] == "starting"
        (flags / "down").unlink()
        role.await_ready(True)
    finally:
        code, lines = role.stop()
    assert code == 0
    assert any("waiting for a dependency" in line for line in lines)


def test_what_waiting_cannot_mend_ends_it_with_one_line(flags: Path, free_port: int) -> None:
    (flags / "hopeless").touch()
    role = Toy(flags, free_port)
    _, errors = role.process.communicate(timeout=20)
    assert role.process.returncode == 2
    assert "Traceback" not in errors
    last = json.loads(errors.splitlines()[-1])
    assert (last["event"], last["error"]) == ("role failed", "cannot start: it is hopeless; give up")


def test_a_taken_port_is_misuse(toy: Toy, flags: Path) -> None:
    toy.await_ready(True)
    second = Toy(flags, toy.port)
    _, errors = second.process.communicate(timeout=20)
    assert second.process.returncode == 2
    assert "another process uses the port" in errors
    assert "Traceback" not in errors
