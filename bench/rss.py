"""Memory growth: RSS of query-api and query-worker after 2,000 mixed queries, against that after 200.

    python -m bench rss [--queries 2000] [--early 200] [--clients 4]

Both run as processes over real segments and a real PostgreSQL, and are queried over HTTP. The mix covers instant and
range queries, histograms, regular expressions, labels, series, streams and errors. Regular expressions and times never
repeat, so no cache ever holds all answers.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson

from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.memory_source import MemorySource
from lakerunner.query.worker.memory_watch import TRIM_AFTER_S
from lakerunner.runtime.memory import own_bytes, release_memory, resident_bytes
from tests.components.postgres import PostgresServer
from tests.components.process import RunningProcess, free_port
from tests.query.lake_of_series import LakeOfSeries, lake_of_series

ROOT = Path(__file__).parents[1]
START_S, HOURS, STEP_S = 1_700_000_000, 6, 15
SERIES = 300
BOUNDS = (0.1, 0.5, 1.0)
_READY_S = 120.0
#: Wait before measuring, so that work in progress does not count as growth.
_SETTLE_S = TRIM_AFTER_S + 5.0


def write(lake: LakeOfSeries) -> None:
    """Write counters and histograms, in segments of one hour."""
    points = 3_600 // STEP_S
    for hour in range(HOURS):
        loaded = MemorySource()
        times = (START_S + hour * 3_600 + STEP_S * np.arange(points)) * 1000
        for number in range(SERIES):
            labels = {"__name__": "requests_total", "job": f"job{number % 10}", "pod": f"pod-{number}"}
            loaded.add(LabelSet.of(labels), times, np.arange(points) + hour * points * 1.0)
        for number in range(10):
            held = [_histogram(float(hour * points + point)) for point in range(points)]
            loaded.add(LabelSet.of({"__name__": "latency", "job": f"job{number}"}), times, np.zeros(points), None, held)
        lake.commit(DEFAULT_ORG_ID, [lake.put(DEFAULT_ORG_ID, list(loaded._series.values()), "cumulative")])


def _histogram(count: float) -> Histogram:
    return Histogram(
        schema=-53, count=2 * count, sum=count, pos_index=np.array([0, 2]), pos_count=np.array([count, count]),
        bounds=BOUNDS,
    )  # fmt: skip


def question(number: int) -> tuple[str, str, dict[str, Any]]:
    """Return method, path and parameters of the nth query, the same in every run."""
    draw = random.Random(number)
    end = START_S + draw.randrange(3_600, HOURS * 3_600) + draw.random()
    window = {"start": end - draw.choice((600, 1_800, 3_600)), "end": end, "step": draw.choice((15, 30, 60))}
    pods = f'pod=~"pod-({draw.randrange(300)}|{draw.randrange(300)}|{number})"'
    return draw.choice(
        (
            ("GET", "query", {"query": f"requests_total{{{pods}}}", "time": end}),
            ("GET", "query", {"query": f"sum by (job) (rate(requests_total[{draw.randrange(1, 60)}m]))", "time": end}),
            ("GET", "query_range", {"query": "sum by (job) (rate(requests_total[5m]))", **window}),
            ("GET", "query_range", {"query": f"requests_total{{{pods}}} * {number}", **window}),
            ("GET", "query_range", {"query": f"topk({draw.randrange(1, 9)}, increase(requests_total[1m]))", **window}),
            (
                "POST",
                "query_range",
                {"query": f"histogram_quantile(0.{number % 90 + 9}, sum by (le) (rate(latency_bucket[5m])))", **window},
            ),
            ("GET", "query_range", {"query": "histogram_quantile(0.9, sum(rate(latency[5m])))", **window}),
            ("GET", "labels", {"start": end - 600, "end": end, "match[]": f"{{{pods}}}"}),
            ("GET", "label/pod/values", {"start": end - 600, "end": end}),
            ("GET", "series", {"start": end - 600, "end": end, "match[]": f"requests_total{{{pods}}}"}),
            ("GET", "query", {"query": f"sum(requests_total{{job='{number}'"}),
            ("GET", "query", {"query": f"rate(requests_total{{{pods}}})"}),
            (
                "GET",
                "metrics/query",
                {"q": "max by (job) (requests_total)", "s": int(end - 1_800) * 1000, "e": int(end) * 1000},
            ),
        )
    )


def ask(client: httpx.Client, number: int) -> int:
    method, path, params = question(number)
    url = f"/api/v1/{path}"
    answer = client.get(url, params=params) if method == "GET" else client.post(url, data=params)
    if answer.status_code not in (200, 400):
        raise SystemExit(f"query {number} failed: {answer.status_code} {answer.text[:300]}")
    return answer.status_code


@contextmanager
def processes(lake: LakeOfSeries, folder: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Start API and worker; yield the API's address and the process ids by role."""
    ports = {"query-worker": free_port(), "query-api": free_port()}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKERUNNER_")}
    with ExitStack() as stack:
        pids = {}
        for role, port in ports.items():
            env = {
                **inherited,
                "LAKERUNNER_INDEX_URL": lake.settings.index.url,
                "LAKERUNNER_DATA_DIR": str(folder),
                "LAKERUNNER_STORE_URL": lake.settings.store_url,
                "LAKERUNNER_HTTP_PORT": str(port),
                "LAKERUNNER_AUTH_REQUIRED": "false",
                "PYTHONPATH": str(ROOT / "src"),
            }
            argv = [sys.executable, "-m", "lakerunner", role]
            process = stack.enter_context(RunningProcess.start(argv, log_path=folder / f"{role}.log", env=env))
            process.wait_for_port("127.0.0.1", port, _READY_S)
            _await_ready(port)
            pids[role] = process.pid
        yield f"http://127.0.0.1:{ports['query-api']}", pids


def _await_ready(port: int) -> None:
    end = time.monotonic() + _READY_S
    while httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=_READY_S).status_code != 200:
        if time.monotonic() > end:
            raise SystemExit("a process did not become ready")
        time.sleep(0.1)


def measure(url: str, pids: dict[str, int], early: int, queries: int, clients: int) -> None:
    seen: Counter[int] = Counter()
    with httpx.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(clients) as pool:
        seen.update(pool.map(lambda number: ask(client, number), range(early)))
        time.sleep(_SETTLE_S)
        before = {role: (resident_bytes(pid), own_bytes(pid)) for role, pid in pids.items()}
        seen.update(pool.map(lambda number: ask(client, number), range(early, queries)))
        time.sleep(_SETTLE_S)
    for role, pid in pids.items():
        value, peer = resident_bytes(pid), before[role][0]
        line = {
            "bench": "rss", "case": role, "value": value, "unit": "bytes", "better": "lower",
            "peer": f"the same process after {early} queries", "peer_value": peer, "ratio": round(value / peer, 3),
            "queries": sum(seen.values()), "answered": seen[200],
            "own_bytes": own_bytes(pid), "own_bytes_early": before[role][1],
        }  # fmt: skip
        sys.stdout.write(orjson.dumps(line).decode() + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the queries")
    parser.add_argument("--queries", type=int, help="queries in all (default 2,000)")
    parser.add_argument("--early", type=int, help="queries before the first look (default 200)")
    parser.add_argument("--clients", type=int, default=4, help="clients at once")
    args = parser.parse_args()
    queries, early = args.queries or (200 if args.quick else 2_000), args.early or (20 if args.quick else 200)
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as name:
        folder = Path(name)
        server = PostgresServer(folder / "pg")
        server.start()
        try:
            with lake_of_series(folder / "lake", server.new_database()) as lake:
                write(lake)
                release_memory()
                with processes(lake, folder / "data") as (url, pids):
                    measure(url, pids, early, queries, args.clients)
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
