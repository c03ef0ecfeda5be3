"""How queries scale with query workers: 1, 2 and 4 processes that have a fixed share of a core each, as JSON lines.

    python -m bench query_workers [--cores 0.1] [--series 1000] [--rows 10000] [--rounds 3] [--quick]

Six hours of metrics and logs in segments of ten and four minutes. The same queries are asked of one API with N
`lakerunner query-worker` processes, each with the segments in its cache. The peer is the ideal law: 1/N of what one
worker took. `uneven` is the CPU time of the busiest worker by that of one worker alone over N: it tells an uneven
distribution, and does not depend on what else this machine does. A control group of the kernel limits each worker.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

import httpx
import numpy as np
from bench.cpu_share import CpuShare
from bench.ingest import scratch_folder
from bench.log_scan import lines
from bench.served.index import postgres
from bench.workers import Machine, cpu_s, shares

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.orgs import DEFAULT_ORG_ID
from lakerunner.model.labels import LabelSet
from lakerunner.query.series.memory_source import MemorySource
from tests.components.process import free_port
from tests.query.lake_of_logs import put_logs
from tests.query.lake_of_series import LakeOfSeries, lake_of_series

_WORKERS = (1, 2, 4)
_TOKEN = "bench"
_START_S = lines.START_NS // 10**9
_HOURS, _SCRAPE_S, _SEGMENT_S = 6, 15, 600
_END_S = _START_S + _HOURS * 3_600
_QUANTILE = (
    'quantile_over_time(0.9, {service_name=~".+"} | duration_ms > 0.0N | unwrap duration_ms [5m]) by (service_name)'
)
#: `N` is another number each time: workers remember which rows a filter left.
_CASES = {
    "PromQL, rate by job, 361 steps": ("prometheus", "sum by (job) (rate(requests_total[Nm]))", 60),
    "LogQL, count of a pattern by service, 361 steps": (
        "loki",
        'sum by (service_name) (count_over_time({service_name=~".+"} |~ "i.ems.*N" [1m]))',
        60,
    ),
    "LogQL, quantile of a field by service, 73 steps": ("loki", _QUANTILE, 300),
}
_PATHS = {"prometheus": "/api/v1/query_range", "loki": "/loki/api/v1/query_range"}


def write(lake: LakeOfSeries, series: int, rows: int) -> None:
    for begin in range(_START_S, _END_S, _SEGMENT_S):
        loaded = MemorySource()
        times = np.arange(begin, begin + _SEGMENT_S, _SCRAPE_S, dtype=np.int64) * 1000
        for number in range(series):
            labels = {"__name__": "requests_total", "job": f"job{number % 10}", "pod": f"pod-{number}"}
            loaded.add(LabelSet.of(labels), times, times / 1000.0 - _START_S)
        lake.commit(DEFAULT_ORG_ID, [lake.put(DEFAULT_ORG_ID, list(loaded._series.values()), "cumulative")])
    random = np.random.default_rng(7)
    for number in range(_HOURS * 3_600 * 10**9 // lines.SEGMENT_NS):
        lake.commit(DEFAULT_ORG_ID, [put_logs(lake, DEFAULT_ORG_ID, lines.records(number, rows, random))])


def ask(api: httpx.Client, case: str, number: int) -> tuple[float, int]:
    """Seconds that the query took, and how many series it has."""
    dialect, query, step_s = _CASES[case]
    params: dict[str, Any] = {
        "query": query.replace("N", str(number)),
        "start": _START_S,
        "end": _END_S,
        "step": step_s,
        "nocache": 1,
    }
    began = time.monotonic()
    answer = api.get(_PATHS[dialect], params=params)
    took_s = time.monotonic() - began
    if answer.status_code != 200 or answer.json().get("warnings"):
        raise SystemExit(f"{case}: {answer.status_code} {answer.text[:500]}")
    return took_s, len(answer.json()["data"]["result"])


def measure(machine: Machine, rounds: int) -> None:
    alone: dict[str, tuple[float, float]] = {}
    for count in _WORKERS:
        with shares(count) as group, ExitStack() as stack:
            ports = [free_port() for _ in group]
            for share, port in zip(group, ports, strict=True):
                own = {"query__worker_port": str(port), "query__worker_token": _TOKEN}
                stack.enter_context(machine.role("query-worker", share, **own))
            settings = {
                "query__workers": ",".join(f"127.0.0.1:{port}" for port in ports), "query__worker_token": _TOKEN,
                "query__timeout_s": "600", "auth__required": "false",
            }  # fmt: skip
            _, port = stack.enter_context(machine.role("query-api", None, **settings))
            api = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=600))
            for number in (1, 2):
                for case in _CASES:
                    ask(api, case, number)
            for share in group:
                share.limit(machine.cores)
            for case in _CASES:
                _run(case, count, api, group, machine.cores, rounds, alone)
            for share in group:
                share.limit(1.0)


def _run(
    case: str, count: int, api: httpx.Client, group: list[CpuShare], cores: float, rounds: int,
    alone: dict[str, tuple[float, float]],
) -> None:  # fmt: skip
    before, took = cpu_s(group), []
    for number in range(3, 3 + rounds):
        took_s, found = ask(api, case, number)
        assert found, case
        took.append(took_s)
    spent = [after - begun for begun, after in zip(before, cpu_s(group), strict=True)]
    value = median(took)
    alone.setdefault(case, (value, spent[0]))
    ideal_s, ideal_cpu_s = (each / count for each in alone[case])
    line = {
        "bench": "query_workers", "case": f"{case}, {count} workers of {cores:g} cores each",
        "value": round(value, 3), "unit": "s", "better": "lower", "peer": "1/N of one worker",
        "peer_value": round(ideal_s, 3), "ratio": round(value / ideal_s, 3),
        "uneven": round(max(spent) / ideal_cpu_s, 3), "cpu_s": [round(each, 2) for each in spent],
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench query_workers", description=__doc__)
    parser.add_argument("--cores", type=float, default=0.1, help="share of a core that each worker has")
    parser.add_argument("--series", type=int, default=1_000, help="series of the metric")
    parser.add_argument("--rows", type=int, default=10_000, help="log records of each of 90 segments")
    parser.add_argument("--rounds", type=int, default=3, help="how often each query is asked; the median counts")
    parser.add_argument("--quick", action="store_true", help="a fifth of the rows and series")
    chosen = parser.parse_args()
    part = 5 if chosen.quick else 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with scratch_folder() as folder, postgres(folder) as (database, _):
        machine = Machine(folder, database, chosen.cores)
        with lake_of_series(folder, EmbeddedPostgres(folder).url) as lake:
            write(lake, chosen.series // part, chosen.rows // part)
        measure(machine, chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
