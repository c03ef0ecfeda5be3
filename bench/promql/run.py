"""Run the benchmark: load the servers, compare answers, measure, report."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import bench.promql
import orjson
from bench.promql.answers import difference
from bench.promql.cases import Case, Target, cases, chosen
from bench.promql.loading import fill_lake, fill_peers
from bench.promql.servers import MAX_SAMPLES, Peer, Prometheus, VictoriaMetrics
from bench.promql.sets import MetricSet, sets
from bench.promql.stream import range_case, stream
from bench.served.folder import kept_folder
from bench.served.index import postgres
from bench.served.measure import Spent, cold, hot
from bench.served.options import read_options
from bench.served.report import Figure, Report, say
from bench.served.server import Lake, Server, env_without_lakerunner

from tests.components.peers import VARIABLE, find_peer

_STREAMED = "long sum by rate 6h"
#: The parameter that adds what was read to our answer.
_EXPLAIN = (("explain", "1"),)
_SAMPLE_BYTES = 16
#: Below this, Prometheus' time is mostly HTTP overhead.
_WORTH_COMPARING_MS = 200.0
#: The share of the full answer's time after which a stream should send its first point.
_FIRST_POINT = 0.3
_RATE = "sum by (job) (rate({}[5m]))"


_figure = partial(Figure, "promql")


def main() -> int:
    options = read_options("promql", bench.promql.__doc__, "use a twentieth of the series")
    env_without_lakerunner()
    # SIGTERM must stop the servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    prometheus, victoria = find_peer("prometheus"), find_peer("victoria-metrics")
    if prometheus is None:
        say(f"cannot compare: `prometheus` is neither on PATH nor in the folder of {VARIABLE}")
        return 2
    with kept_folder(options.keep) as folder:
        peers: list[Peer] = [Prometheus(folder / "prometheus", prometheus)]
        if victoria is None:
            say("`victoria-metrics` is not found: its column is left out")
        else:
            peers.append(VictoriaMetrics(folder / "victoria-metrics", victoria))
        return _bench(folder, peers, sets(options.quick), options)


def _bench(folder: Path, peers: Sequence[Peer], loaded: Sequence[MetricSet], options: argparse.Namespace) -> int:
    fill_peers(peers, loaded)
    report = Report()
    with postgres(folder / "lake") as (database, index_pid), ExitStack() as running:
        fill_lake(database, folder / "lake", loaded)
        own = Lake(folder / "lake", index_pid, MAX_SAMPLES, **dict(options.settings))
        servers: list[Server] = [own, *peers]
        for server in servers:
            # Registered before the start, which may fail half way.
            running.callback(server.stop)
            server.start()
        wanted = [case for case in cases() if chosen(options.only, case.name)]
        wrong = _compare(report, own, peers[0], wanted)
        for case in wanted:
            if case.name not in wrong:
                _measure(report, servers, case, options)
        _measure_stream(report, own, options)
        _measure_growth(report, own, options)
    report.conclude(
        "answer caches are bypassed (nocache=1); Prometheus has the newest hours in its head and the rest in blocks; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    for name, reason in wrong.items():
        say(f"DIFFERENT ANSWER: {name}: {reason}")
    return 1 if wrong else 0


def _compare(report: Report, own: Lake, prometheus: Peer, wanted: Sequence[Case]) -> dict[str, str]:
    """Return the cases whose answer differs from Prometheus'; those are not timed. This also warms the caches."""
    wrong = {}
    for case in wanted:
        ours, theirs = own.ask(case.path, (*case.fields, *_EXPLAIN)), prometheus.ask(case.path, case.fields)
        found = difference(ours, theirs, any_of_equals=case.any_of_equals)
        if found:
            wrong[case.name] = found
            say(f"different answer: {case.name}: {found}")
        elif "explain" in (answer := orjson.loads(ours)):
            report.tell(_bytes_read(case.name, answer["explain"]))
    return wrong


def _bytes_read(name: str, explained: Mapping[str, Any]) -> Figure:
    """Compare the bytes read with one time and one value per sample read."""
    peer_value = explained["rows"] * _SAMPLE_BYTES / 1e6
    return _figure(
        f"{name} bytes read", explained["bytes"] / 1e6, "MB", f"{_SAMPLE_BYTES} bytes per sample", peer_value
    )


def _measure(report: Report, servers: Sequence[Server], case: Case, options: argparse.Namespace) -> None:
    asked = [server for server in servers if case.victoria or not isinstance(server, VictoriaMetrics)]
    report.tell(*_figures(f"{case.name} hot", asked, hot(asked, case, options.rounds), case.target))
    if options.cold:
        report.tell(*_figures(f"{case.name} cold", asked, cold(asked, case, options.cold), None))


def _figures(name: str, asked: Sequence[Server], spent: Sequence[Spent], target: Target | None) -> Iterator[Figure]:
    """Yield our wall and CPU time against each peer's."""
    ours = spent[0]
    for peer, theirs in zip(asked[1:], spent[1:], strict=True):
        held = _held(target, peer, theirs)
        most_ratio, most_ms = (None, None) if held is None else (held.most_ratio, held.most_ms)
        yield _figure(f"{name} wall", ours.wall_ms, "ms", peer.name, theirs.wall_ms, most_ratio, most_ms)
        yield _figure(f"{name} cpu", ours.cpu_ms, "ms", peer.name, theirs.cpu_ms, most_ratio)


def _held(target: Target | None, peer: Server, theirs: Spent) -> Target | None:
    """Return the target that applies to a peer. Targets refer to Prometheus; parity only to its slow queries."""
    if not isinstance(peer, Prometheus) or (target is Target.SAME and theirs.wall_ms <= _WORTH_COMPARING_MS):
        return None
    return target


def _measure_stream(report: Report, own: Lake, options: argparse.Namespace) -> None:
    if not chosen(options.only, f"stream {_STREAMED}"):
        return
    streamed = stream(own, _RATE.format("requests_total"), 6, 60, options.rounds)
    report.tell(
        _figure(
            f"stream {_STREAMED} first point", streamed.first_ms, "ms", "full answer", streamed.at_once_ms, _FIRST_POINT
        ),
        _figure(f"stream {_STREAMED} whole", streamed.whole_ms, "ms", "full answer at once", streamed.at_once_ms),
        _bytes_read(f"stream {_STREAMED}", streamed.summary),
    )


def _measure_growth(report: Report, own: Lake, options: argparse.Namespace) -> None:
    """Measure doubled series and samples against twice the time of half as many; a ratio of 1 is linear."""
    doubled = [
        ("series", [range_case(f"{n}x", _RATE.format(f"grown_{n}_total"), 1, 60) for n in (1, 2, 4)]),
        ("samples", [range_case(f"{n}h", _RATE.format("requests_total"), n, 60) for n in (1, 2, 4)]),
    ]
    for what, growing in doubled:
        if not chosen(options.only, f"growth double {what}"):
            continue
        spent = []
        for case in growing:
            own.ask(case.path, case.fields)
            spent.append(hot([own], case, options.rounds)[0])
        for number in (1, 2):
            before, after = spent[number - 1], spent[number]
            name, peer = f"growth double {what} {growing[number].name}", f"twice {growing[number - 1].name}"
            report.tell(
                _figure(f"{name} wall", after.wall_ms, "ms", peer, before.wall_ms * 2),
                _figure(f"{name} cpu", after.cpu_ms, "ms", peer, before.cpu_ms * 2),
            )


if __name__ == "__main__":
    sys.exit(main())
