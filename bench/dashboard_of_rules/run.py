"""Run the benchmark: load the day, compare the answers of both ways, measure, report."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import bench.dashboard_of_rules
from bench.dashboard_of_rules import lake
from bench.dashboard_of_rules.panels import Panel, panels
from bench.logql.answers import difference
from bench.served.folder import kept_folder
from bench.served.index import postgres
from bench.served.measure import Spent, turn, wait_until_idle
from bench.served.report import Figure, Report, say
from bench.served.server import Lake, env_without_lakerunner

from lakerunner.model.time import NS_PER_HOUR

_figure = partial(Figure, "dashboard_of_rules")
_MOST_RATIO = 0.02
_MAX_SAMPLES = 400_000_000
_RATE, _QUICK_RATE = 200.0, 5.0
#: Every how manyth panel is also timed cold: each needs a restart.
_COLD_PANELS = 4


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench dashboard_of_rules",
        description=bench.dashboard_of_rules.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a fortieth of the lines: does it work at all")
    parser.add_argument("--rate", type=float, help=f"lines per second, averaged over the day (default {_RATE:g})")
    parser.add_argument("--step", type=int, default=120, help="seconds; 120 is Grafana's for a day on 700 pixels")
    parser.add_argument("--rounds", type=int, default=3, help="turns per panel and way; the median counts")
    parser.add_argument("--cold", type=int, default=0, help="also measure this many turns after a restart")
    parser.add_argument("--keep", type=Path, help="folder that keeps the lake")
    parser.add_argument("--hours", type=int, default=lake.HOURS, help="load at most so many hours in this run")
    parser.add_argument("--only", action="append", default=[], help="panels whose text contains this")
    return parser.parse_args()


def main() -> int:
    options = _options()
    env_without_lakerunner()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rate = options.rate or (_QUICK_RATE if options.quick else _RATE)
    with kept_folder(options.keep) as folder, postgres(folder / "lake") as (database, index_pid):
        began_s = time.process_time()
        state = lake.load(database, folder / "lake", rate, options.hours)
        say(f"{state.hours} of {lake.HOURS} hours are loaded; this run took {time.process_time() - began_s:.0f} s CPU")
        if not state.rolled_up:
            return 0
        server = Lake(folder / "lake", index_pid, _MAX_SAMPLES, api_shadow_share="0")
        try:
            server.start()
            wait_until_idle(server)
            return _bench(server, state, options)
        finally:
            server.stop()


def _bench(server: Lake, state: lake.Loaded, options: argparse.Namespace) -> int:
    report = Report()
    wrong = 0
    totals: dict[str, tuple[list[float], list[float]]] = {"hot": ([], []), "cold": ([], [])}
    step_ns = options.step * 10**9
    # The first window lies in the day.
    start_ns, end_ns = state.start_ns + NS_PER_HOUR, state.end_ns // step_ns * step_ns
    for number, text in enumerate(panels(f"{options.step}s"), 1):
        if options.only and not any(part in text for part in options.only):
            continue
        ways = [Panel(text, start_ns, end_ns, options.step, by_rules) for by_rules in (True, False)]
        ruled, raw = (server.ask(way.path, way.fields) for way in ways)
        if found := difference(ruled, raw, any_of_equals="topk" in text):
            wrong += 1
            say(f"DIFFERENT ANSWER: panel {number}, {text}: {found}")
            continue
        for kind, rounds in (("hot", options.rounds), ("cold", options.cold)):
            if not rounds or (kind == "cold" and number % _COLD_PANELS != 1):
                continue
            spent = [Spent(), Spent()]
            for _ in range(rounds):
                for way, so_far in zip(ways, spent, strict=True):
                    if kind == "cold":
                        server.stop()
                        server.forget()
                        server.start()
                        wait_until_idle(server)
                    turn(server, way, so_far, 10 if way.by_rules and kind == "hot" else 1)
            name = f"{kind}, panel {number}: {text}"
            report.tell(
                _figure(f"{name} wall", spent[0].wall_ms, "ms", "raw rows", spent[1].wall_ms),
                _figure(f"{name} cpu", spent[0].cpu_ms, "ms", "raw rows", spent[1].cpu_ms, _MOST_RATIO),
            )
            for total, so_far in zip(totals[kind], spent, strict=True):
                total.append(so_far.cpu_ms)
    for kind, (ours, theirs) in totals.items():
        if ours:
            report.tell(
                _figure(f"{kind}, all timed panels, cpu", sum(ours), "ms", "raw rows", sum(theirs), _MOST_RATIO)
            )
            ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
            say(f"{kind}: median ratio of panels {ratio:.4f}")
    report.conclude(
        f"{state.rate:g} lines a second; answer caches are bypassed; load average {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} cores"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
