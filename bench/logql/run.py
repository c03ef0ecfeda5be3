"""Run the benchmark: load both servers, compare answers, measure, report."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import bench.logql
from bench.logql import lake
from bench.logql.answers import difference
from bench.logql.cases import COUNT_ALL, cases
from bench.logql.interactive import interactive_figures
from bench.logql.loki import Loki
from bench.logql.records import objects
from bench.logql.victoria import QUERY, VictoriaLogs, fields_of
from bench.served.folder import is_filled, kept_folder, note_filled
from bench.served.index import postgres
from bench.served.measure import Spent, cold, hot, wait_until_idle
from bench.served.options import read_options
from bench.served.report import Figure, Report, say
from bench.served.server import Lake, env_without_lakerunner

from lakerunner.index.database import Database
from tests.components.peers import VARIABLE, find_peer

#: Increase it when the generator's output changes, so that old data is not reused.
_VERSION = 1
_RECORDS, _QUICK_RECORDS = 1_000_000, 100_000
_MAX_SAMPLES = 400_000_000
_figure = partial(Figure, "logql")


def main() -> int:
    options = read_options("logql", bench.logql.__doc__, "use a tenth of the records")
    env_without_lakerunner()
    # SIGTERM must stop the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    binary = find_peer("loki")
    if binary is None:
        say(f"cannot compare: `loki` is neither on PATH nor in the folder of {VARIABLE}")
        return 2
    with kept_folder(options.keep) as folder, postgres(folder / "lake") as (database, index_pid):
        records = _QUICK_RECORDS if options.quick else _RECORDS
        own, loki = (
            Lake(folder / "lake", index_pid, _MAX_SAMPLES, **dict(options.settings)),
            Loki(folder / "loki", binary),
        )
        other = find_peer("victoria-logs")
        victoria = VictoriaLogs(folder / "victoria-logs", other) if other is not None else None
        servers = [own, loki, *([] if victoria is None else [victoria])]
        try:
            _fill_lake(database, folder / "lake", records)
            _fill_loki(loki, records)
            if victoria is not None:
                _fill_victoria(victoria, records)
            for server in servers:
                server.start()
            _require_all(loki, records)
            for server in servers:
                # What a start leaves to do is not the first query's: our slow lane, merges of the others.
                wait_until_idle(server)
            return _bench(own, loki, victoria, options)
        finally:
            for server in servers:
                server.stop()


def _bench(own: Lake, loki: Loki, victoria: VictoriaLogs | None, options: argparse.Namespace) -> int:
    report = Report()
    wrong: dict[str, str] = {}
    for case in cases():
        if options.only and not any(name in case.name for name in options.only):
            continue
        ours, theirs = own.ask(case.path, case.fields), loki.ask(case.path, case.fields)
        if found := difference(ours, theirs, any_of_equals=case.any_of_equals):
            wrong[case.name] = found
            say(f"different answer: {case.name}: {found}")
            continue
        for kind, measure, rounds in (("hot", hot, options.rounds), ("cold", cold, options.cold)):
            if not rounds:
                continue
            name, most_cpu = f"{case.name} {kind}", case.most_cpu if kind == "hot" else None
            if victoria is None:
                report.tell(*_figures(name, measure([own, loki], case, rounds), Loki.name, most_cpu))
                continue
            # In turns with ours too: a core may be twice as slow some seconds later.
            in_logsql = replace(case, path=QUERY, fields=fields_of(case.logsql))
            mine, others, fastest = measure([own, loki, victoria], [case, case, in_logsql], rounds)
            report.tell(*_figures(name, [mine, others], Loki.name, most_cpu))
            report.tell(*_figures(name, [mine, fastest], VictoriaLogs.name, 1.0))
    if not options.only or "interactive" in options.only:
        report.tell(*interactive_figures(own, options.rounds))
    report.conclude(
        "answer caches are bypassed; Loki has the records in its store; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for name, reason in wrong.items():
        say(f"DIFFERENT ANSWER: {name}: {reason}")
    return 1 if wrong else 0


def _figures(name: str, spent: Sequence[Spent], peer: str, most_cpu: float | None) -> Iterator[Figure]:
    ours, theirs = spent
    yield _figure(f"{name} wall", ours.wall_ms, "ms", peer, theirs.wall_ms)
    yield _figure(f"{name} cpu", ours.cpu_ms, "ms", peer, theirs.cpu_ms, most_cpu)


def _fill_lake(database: Database, folder: Path, records: int) -> None:
    contents = f"{_VERSION} {records}"
    if is_filled(folder, contents):
        return
    if (folder / "bucket").exists():
        raise SystemExit(f"cannot load into {folder}: it holds the records of another run; remove it")
    began = time.monotonic()
    rows = lake.load(database, folder, objects(records))
    note_filled(folder, contents)
    say(f"lakerunner: {rows:,} rows ingested in {time.monotonic() - began:.0f} s")


def _fill_loki(loki: Loki, records: int) -> None:
    contents = f"{_VERSION} {records}"
    if is_filled(loki.folder, contents):
        return
    shutil.rmtree(loki.folder, ignore_errors=True)
    loki.start()
    began = time.monotonic()
    try:
        for body in objects(records):
            loki.write(body)
        loki.flush()
        say(f"loki: {records:,} records sent in {time.monotonic() - began:.0f} s")
    finally:
        loki.stop()
    note_filled(loki.folder, contents)


def _fill_victoria(victoria: VictoriaLogs, records: int) -> None:
    contents = f"{_VERSION} {records}"
    if is_filled(victoria.folder, contents):
        return
    shutil.rmtree(victoria.folder, ignore_errors=True)
    victoria.start()
    began = time.monotonic()
    try:
        for body in objects(records):
            victoria.write(body)
        victoria.flush(records)
        say(f"victoria-logs: {records:,} records sent in {time.monotonic() - began:.0f} s")
    finally:
        victoria.stop()
    note_filled(victoria.folder, contents)


def _require_all(loki: Loki, records: int) -> None:
    """Answers over fewer records would be faster, and would differ for no fault of ours."""
    counted = json.loads(loki.ask(*COUNT_ALL))["data"]["result"]
    found = int(counted[0]["value"][1]) if counted else 0
    if found != records:
        raise SystemExit(f"cannot compare: loki has {found:,} of {records:,} records; remove {loki.folder}")


if __name__ == "__main__":
    sys.exit(main())
