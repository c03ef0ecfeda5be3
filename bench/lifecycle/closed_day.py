"""What the rollup of a day takes: hour by hour, hours joined afterwards, and a closed day in one pass.

CPU time of the process and of PostgreSQL, index, boxer's choice and commits included, without bus and Spark.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import structlog

from tests.components.postgres import PostgresServer
from tests.pipeline.lake import Lake, settings_of
from tests.pipeline.rollup.naive import Sample
from tests.pipeline.rollup.tier_lake import DAY_MS, add, roll_up_all, settle_all

_MS_PER_DAY = 86_400_000
#: Series, and samples of each.
_SIZES = ((1, 1_440), (40, 1_440), (2_000, 288))
_QUICK_SIZES = ((1, 1_440), (40, 1_440))


def measure(quick: bool) -> Iterator[str]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="bench-day-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = PostgresServer(folder / "pg")
        server.start()
        try:
            _spent(server, folder, 1, 60)  # kernels are loaded
            for series, count in _QUICK_SIZES if quick else _SIZES:
                yield from _lines(series * count, *_spent(server, folder, series, count))
        finally:
            server.stop()


def _spent(server: PostgresServer, folder: Path, series: int, count: int) -> tuple[float, float, float]:
    step_ms = _MS_PER_DAY // count
    samples = [Sample(tid, DAY_MS + 1 + nth * step_ms, float(nth)) for tid in range(series) for nth in range(count)]
    spent = []
    for works in ((roll_up_all, settle_all), (settle_all,)):
        lake = Lake(settings_of(server.new_database(), Path(tempfile.mkdtemp(dir=folder))))
        add(lake, samples)
        for work in works:
            before_s = _cpu_s()
            work(lake)
            spent.append(_cpu_s() - before_s)
        lake.close()
    hours_s, join_s, day_s = spent
    return hours_s, join_s, day_s


def _cpu_s() -> float:
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (me, *me.children(recursive=True)))


def _lines(samples: int, hours_s: float, join_s: float, day_s: float) -> Iterator[str]:
    for case, value in (("all tiers of a closed day in one pass", day_s), ("joining the hours of a day", join_s)):
        yield json.dumps(
            {
                "bench": "lifecycle", "case": f"{case}, {samples} samples", "value": round(value, 2),
                "unit": "s of CPU",
                "better": "lower", "peer": "all tiers hour by hour", "peer_value": round(hours_s, 2),
                "ratio": round(value / hours_s, 3),
            }
        )  # fmt: skip
