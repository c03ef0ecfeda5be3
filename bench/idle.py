"""The weight of one machine: seconds until `serve` is ready, and its memory and cores while nothing happens.

    python -m bench idle [--seconds 60] [--cold]

With --cold nothing is compiled yet, as on a machine where nobody ran `lakerunner warm`, and telemetry lies ready. The
start is measured, what the first queries take while kernels are compiled in the background, and when that is done.

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
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import psutil

from lakerunner.demo.produce import batches
from lakerunner.model.time import NS_PER_S
from lakerunner.ops.supervisor import RoleAddress, is_ready, read_serve_state
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.runtime.surroundings import MARK
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

_READY_S = 180.0
#: After the last role is ready, kernels are still loaded and Spark's workers started.
_SETTLE_S = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench idle", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="watch it for ten seconds")
    parser.add_argument("--seconds", type=float, help="how long to watch it while it is idle (default 60)")
    parser.add_argument("--cold", action="store_true", help="without compiled kernels, and with queries from the start")
    chosen = parser.parse_args()
    seconds = chosen.seconds or (10.0 if chosen.quick else 60.0)
    with tempfile.TemporaryDirectory(prefix="lakerunner-idle-", ignore_cleanup_errors=True) as folder:
        data_dir = Path(folder) / "data"
        env = {**os.environ, "LAKERUNNER_DATA_DIR": str(data_dir), "LAKERUNNER_HTTP_PORT": "0"}
        if chosen.cold:
            env |= {"NUMBA_CACHE_DIR": str(Path(folder) / "kernels"), "LAKERUNNER_AUTH_REQUIRED": "false"}
            _lay_ready(data_dir)
        else:
            subprocess.run([sys.executable, "-m", "lakerunner", "warm"], check=True, stdout=subprocess.DEVNULL)
        began_s = time.monotonic()
        serve = subprocess.Popen(
            [sys.executable, "-m", "lakerunner", "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _await_ready(data_dir, serve)
            took_s = round(time.monotonic() - began_s, 1)
            _say("all roles are ready", took_s, "s", cpu_s=round(_cpu_s(serve.pid), 1), cold=chosen.cold)
            if chosen.cold:
                _first_queries(data_dir, Path(folder) / "kernels" / MARK, began_s, serve.pid)
                return 0
            time.sleep(_SETTLE_S)
            before, began_s = _cpu_of_each(serve.pid), time.monotonic()
            time.sleep(seconds)
            took_s = time.monotonic() - began_s
            cores = {name: (cpu_s - before.get(name, 0.0)) / took_s for name, cpu_s in _cpu_of_each(serve.pid).items()}
            busy = {name: round(each, 4) for name, each in cores.items() if each > 0.0005}
            _say("cores while idle", round(sum(cores.values()), 4), "cores", os.cpu_count(), processes=busy)
            sizes = {name: _pss_mib(int(name.split()[0])) for name in _cpu_of_each(serve.pid)}
            whole_mib = psutil.virtual_memory().total >> 20
            each_mib = {name: round(mib) for name, mib in sizes.items()}
            _say("memory while idle (PSS)", round(sum(sizes.values())), "MiB", whole_mib, processes=each_mib)
        finally:
            serve.terminate()
            serve.wait(60)
    return 0


def _lay_ready(data_dir: Path) -> None:
    """Put three minutes of the shop's telemetry into the bucket."""
    store = open_store(StoreConfig.of(Settings(data=DataSettings(dir=data_dir))))
    now_ns = time.time_ns() // NS_PER_S * NS_PER_S
    for signal in ("logs", "metrics", "traces"):
        for nth, body in enumerate(batches(signal, 0, now_ns - 180 * NS_PER_S, now_ns, 100.0)):
            store.put(f"otel-raw/year=2026/month=01/day=01/hour=00/minute=00/{signal}_{nth}.binpb", body)


def _first_queries(data_dir: Path, mark: Path, began_s: float, pid: int) -> None:
    """Ask until rows are visible, then once each what somebody may ask first, and again."""
    state = read_serve_state(data_dir)
    assert state is not None
    (port,) = [each["port"] for each in state["processes"] if each["name"] == "query-api"]  # type: ignore[attr-defined]
    compiled = threading.Thread(target=_tell_compiled, args=(mark, began_s, pid))
    compiled.start()
    logs = ("/loki/api/v1/query_range", {"query": '{service_name=~".+"} |= "order"', "since": "1h", "limit": "10"})
    refused = 0
    while True:
        found, took_s = _ask(port, *logs)
        refused += not found
        if found and found["data"]["result"]:
            break
        time.sleep(0.2)
    _say("first rows are found", round(time.monotonic() - began_s, 1), "s", answer_s=took_s, refused=refused)
    end_s = time.time()
    steps = {"start": f"{end_s - 180:.0f}", "end": f"{end_s:.0f}", "step": "15"}
    rate = "sum by (job) (rate(http_server_request_duration_seconds_count[1m]))"
    counts = 'sum by (level) (count_over_time({service_name=~".+"} | json | __error__="" [1m]))'
    usual = {
        "logs": logs,
        "promql": ("/api/v1/query_range", {"query": rate, **steps}),
        "logql": ("/loki/api/v1/query_range", {"query": counts, **steps}),
        "traceql": ("/api/search", {"q": "{ duration > 10ms }", "start": steps["start"], "end": steps["end"]}),
    }
    for name, (path, fields) in usual.items():
        (_, first_s), (_, second_s) = _ask(port, path, fields), _ask(port, path, fields)
        _say(f"first query of {name}", first_s, "s", again_s=second_s, compiling=not mark.exists())
    compiled.join()


def _ask(port: int, path: str, fields: dict[str, str]) -> tuple[dict[str, Any], float]:
    """The answer, empty if it was refused, and its seconds."""
    began_s, found = time.monotonic(), {}
    address = f"http://127.0.0.1:{port}{path}?{urlencode(fields)}"
    with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(address, timeout=120) as answer:
        found = orjson.loads(answer.read())
    return found, round(time.monotonic() - began_s, 2)


def _tell_compiled(mark: Path, began_s: float, pid: int) -> None:
    end = time.monotonic() + _READY_S
    while not mark.exists():
        if time.monotonic() > end:
            _say("kernels are not compiled yet", _READY_S, "s")
            return
        time.sleep(0.1)
    _say("all kernels are compiled", round(time.monotonic() - began_s, 1), "s", cpu_s=round(_cpu_s(pid), 1))


def _say(case: str, value: float, unit: str, machine: int | None = None, **more: object) -> None:
    """`machine` is what the machine has in all."""
    peer = None if machine is None else "machine"
    ratio = None if machine is None else round(value / machine, 4)
    line = {
        "bench": "idle", "case": case, "value": value, "unit": unit, "better": "lower",
        "peer": peer, "peer_value": machine, "ratio": ratio, **more,
    }  # fmt: skip
    sys.stdout.write(orjson.dumps(line).decode() + "\n")
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
