"""Latency of one org's small queries while another org sends very expensive ones, as JSON lines.

`python -m bench.noisy` starts an API and a worker over a lake of 100,000 series. The peer is the first org alone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import psutil

from lakerunner.serve.lane_process import give_way
from tests.components.postgres import PostgresServer
from tests.query.lake_of_series import lake_of_series
from tests.serve.roles import Keyed, Roles, keyed_org, running_roles
from tests.serve.wide_lake import START_MS, Wide, write_wide

#: Valid but very expensive queries, some of them beyond every limit.
DEATHS = (
    ("query_range", '{__name__=~".+"}', 10_900),
    ("query_range", "sum(wide_0)", 10_900),
    ("query_range", "quantile_over_time(0.5, wide_0[1h])", 200),
    ("query", '{__name__=~"wide_.*"} + on () group_left {__name__=~"wide_.*"}', 0),
    ("query_range", 'count_values("v", wide_0)', 100),
    ("query", "+".join(["wide_0"] * 200), 0),
    ("query", 'label_replace(wide_0, "x", "' + "$1" * 20_000 + '", "pod", "(.*)")', 0),
    ("query", "max_over_time(wide_0[1h:1s])", 0),
    ("query", 'sort_by_label({__name__=~"wide_.*"}, "pod")', 0),
    ("query_range", "wide_0 @ end()", 10_900),
    ("query", '{pod=~"((((((pod-.*)+)+)+)+)+)+x"}', 0),
    ("query", "(" * 10_000 + "1" + ")" * 10_000, 0),
)
ATTACKERS = 8


def attack(url: str, secret: str, end_s: float) -> None:
    """Send expensive queries from several threads until standard input ends, then print the counts of statuses.

    It runs as a separate process, so that the cost of reading the answers is not measured.
    """
    give_way()
    start_s, statuses, over = START_MS / 1000, Counter[int](), threading.Event()

    def ask(first: int) -> None:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=120) as client:
            for path, text, steps in itertools.islice(itertools.cycle(DEATHS), first, None):
                if over.is_set():
                    return
                params: dict[str, object] = {"query": text, "time": end_s, "nocache": 1, "timeout": "20s"}
                if steps:
                    params |= {"start": start_s, "end": end_s, "step": (end_s - start_s) / steps}
                with contextlib.suppress(httpx.HTTPError):
                    statuses[client.post(f"/api/v1/{path}", data=params).status_code] += 1

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(ATTACKERS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    sys.stdout.write(json.dumps(dict(sorted(statuses.items()))))
    sys.stdout.flush()
    os._exit(0)


def small_ones(roles: Roles, org: Keyed, wide: Wide, seconds: float) -> np.ndarray:
    """Return the latencies of the quiet org in milliseconds: an hour of one metric, with a pause of 0.1 s between."""
    took_ms: list[float] = []
    end_s = wide.end_ms / 1000
    with roles.client(org.secret) as client:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            params: dict[str, str | int | float] = {
                "query": "sum(rate(wide_0[5m]))",
                "start": end_s - 3600,
                "end": end_s,
                "step": 60,
                "nocache": 1,
            }
            began = time.monotonic()
            answer = client.get("/api/v1/query_range", params=params)
            took_ms.append((time.monotonic() - began) * 1000)
            assert answer.status_code == 200, answer.text
            time.sleep(0.1)
    return np.array(took_ms)


@contextlib.contextmanager
def watched(roles: Roles, peaks: dict[str, int]) -> Iterator[None]:
    """Record the peak memory of each process in `peaks`."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            held = {"worker": psutil.Process(roles.worker.pid), "api": psutil.Process(roles.api.pid)}
            for child in held["api"].children():
                held["slow lane"] = child
            for name, process in held.items():
                with contextlib.suppress(psutil.Error):
                    peaks[name] = max(peaks.get(name, 0), process.memory_info().rss >> 20)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def report(case: str, value: float, peer: float, **further: object) -> None:
    line = {"bench": "noisy", "case": case, "value": round(value, 2), "unit": "ms", "better": "lower"}
    line |= {"peer": "alone", "peer_value": round(peer, 2), "ratio": round(value / peer, 3), **further}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def measure(roles: Roles, loud: Keyed, quiet: Keyed, wide: Wide, small: Wide, seconds: float) -> None:
    small_ones(roles, quiet, small, 3)
    before = small_ones(roles, quiet, small, seconds / 2)
    peaks: dict[str, int] = {}
    argv = [sys.executable, "-m", "bench.noisy", "--attack", roles.url, loud.secret, str(wide.end_ms / 1000)]
    with (
        watched(roles, peaks),
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as attacker,
    ):
        time.sleep(8.0)
        under = small_ones(roles, quiet, small, seconds)
        statuses = json.loads(attacker.communicate()[0])
    # Wait for the remaining queries of the attack to time out.
    time.sleep(25.0)
    after = small_ones(roles, quiet, small, seconds / 2)
    alone = np.concatenate([before, after])
    for name, share in (("p50", 50), ("p95", 95)):
        report(name, float(np.percentile(under, share)), float(np.percentile(alone, share)), queries=len(under))
    attack_line = {"bench": "noisy", "case": "attack", "statuses": statuses, "peak_rss_mb": peaks}
    sys.stdout.write(json.dumps(attack_line) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series, for ten seconds")
    parser.add_argument("--series", type=int, help="series of the loud org (default 100,000)")
    parser.add_argument("--seconds", type=float, help="how long the attack lasts (default 40)")
    parser.add_argument("--attack", nargs=3, metavar=("URL", "SECRET", "END_S"), help=argparse.SUPPRESS)
    parser.add_argument("--one-lane", action="store_true", help="disable the slow lane, for comparison")
    options = parser.parse_args()
    if options.attack:
        attack(options.attack[0], options.attack[1], float(options.attack[2]))
    series = options.series or (10_000 if options.quick else 100_000)
    seconds = options.seconds or (10.0 if options.quick else 40.0)
    wide, small = Wide(series=series, points=60, segments=2), Wide(series=200, points=60, segments=2)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        server = PostgresServer(folder / "pg")
        server.start()
        stack.callback(server.stop)
        (folder / "data").mkdir()
        url = server.new_database()
        with lake_of_series(folder / "data", url) as lake:
            loud, quiet = keyed_org(lake.database, "loud"), keyed_org(lake.database, "quiet")
            write_wide(lake, loud.org_id, wide)
            write_wide(lake, quiet.org_id, small)
        roles = stack.enter_context(running_roles(folder / "data", url, api_slow_lane=not options.one_lane))
        time.sleep(8.0 if not options.one_lane else 0.0)
        measure(roles, loud, quiet, wide, small, seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
