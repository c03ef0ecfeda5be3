import os
import signal
import subprocess
import sys

SCRIPT = """
from lakerunner.runtime.crash import crash_point
for n in range(3):
    crash_point("here")
    crash_point("elsewhere")
    print(n, flush=True)
"""


def run(armed: str | None) -> tuple[int, list[str]]:
    env = {name: value for name, value in os.environ.items() if name != "LAKERUNNER_CRASH_POINT"}
    if armed:
        env["LAKERUNNER_CRASH_POINT"] = armed
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout.split()


def test_inert_unless_armed() -> None:
    assert run(None) == (0, ["0", "1", "2"])


def test_dies_at_the_named_point() -> None:
    assert run("here") == (-signal.SIGKILL, [])


def test_dies_at_the_passing_asked_for() -> None:
    assert run("elsewhere:2") == (-signal.SIGKILL, ["0"])
