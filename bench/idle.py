"""The weight of one machine: seconds until `serve` is ready, and its memory and cores while nothing happens.

    python -m bench idle [--seconds 60] [--cold]

With --cold nothing is compiled yet, as on a machine where nobody ran `lakerunner warm`; only the start is measured.

Memory is PSS, which divides shared pages among the processes that share them: the sum over all processes of `serve`,
with the embedded PostgreSQL, Java and the slow lane, is what the machine lends. One JSON line per figure.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson
import psutil

from lakerunner.ops.supervisor import RoleAddress, is_ready, read_serve_state

_READY_S = 180.0
#: After the last role is ready, kernels are still loaded and Spark's workers started.
_SETTLE_S = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench idle")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cold", action="store_true")
    chosen = parser.parse_args()
    seconds = chosen.seconds
    with tempfile.TemporaryDirectory(prefix="lakerunner-idle-", ignore_cleanup_errors=True) as folder:
        data_dir = Path(folder) / "data"
        env = {**os.environ, "LAKERUNNER_DATA_DIR": str(data_dir), "LAKERUNNER_HTTP_PORT": "0"}
        if chosen.cold:
            env["NUMBA_CACHE_DIR"] = str(Path(folder) / "kernels")
        began_s = time.monotonic()
        serve = subprocess.Popen(
            [sys.executable, "-m", "lakerunner", "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _await_ready(data_dir, serve)
            took_s = round(time.monotonic() - began_s, 1)
            _say("seconds_to_ready", took_s, cpu_s=round(_cpu_s(serve.pid), 1), cold=chosen.cold)
            if chosen.cold:
                return 0
            time.sleep(_SETTLE_S)
            before, began_s = _cpu_of_each(serve.pid), time.monotonic()
            time.sleep(seconds)
            took_s = time.monotonic() - began_s
            cores = {name: (cpu_s - before.get(name, 0.0)) / took_s for name, cpu_s in _cpu_of_each(serve.pid).items()}
            busy = {name: round(each, 4) for name, each in cores.items() if each > 0.0005}
            _say("idle_cores", round(sum(cores.values()), 4), processes=busy)
            sizes = {name: _pss_mib(int(name.split()[0])) for name in _cpu_of_each(serve.pid)}
            _say("pss_mib", round(sum(sizes.values())), processes={name: round(mib) for name, mib in sizes.items()})
        finally:
            serve.terminate()
            serve.wait(60)
    return 0


def _say(figure: str, value: float, **more: object) -> None:
    sys.stdout.write(orjson.dumps({"case": "idle", "figure": figure, "value": value, **more}).decode() + "\n")
    sys.stdout.flush()


def _await_ready(data_dir: Path, serve: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _READY_S
    while time.monotonic() < end and serve.poll() is None:
        state = read_serve_state(data_dir) or {"processes": []}
        processes: list[dict[str, object]] = state["processes"]  # type: ignore[assignment]
        ports = [int(str(process["port"])) for process in processes if process["port"]]
        if ports and all(is_ready(RoleAddress("", "127.0.0.1", port)) for port in ports):
            return
        time.sleep(0.1)
    raise SystemExit("serve did not become ready")


def _processes(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _cpu_s(pid: int) -> float:
    return sum(_cpu_of_each(pid).values())


def _cpu_of_each(pid: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for process in _processes(pid):
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            times = process.cpu_times()
            found[f"{process.pid} {' '.join(process.cmdline())[-40:].strip()}"] = float(times.user + times.system)
    return found


def _pss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0  # it ended meanwhile
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    sys.exit(main())
