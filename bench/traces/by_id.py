"""A trace by its id, hot and cold, present and absent, over HTTP; and the share of the lake's bytes that it reads."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from bench.served.report import Figure, Report
from bench.served.server import Lake
from bench.traces.peers import Peer
from bench.traces.spans import PER_TRACE, TRACES_PER_PAIR, trace_ids

_figure = partial(Figure, "traces")
_LOOKUPS = 40


def measure_lookups(
    own: Lake, report: Report, paths: Sequence[str], segments: int, peers: Mapping[str, Peer], rounds: int
) -> None:
    traces = max(1, segments // 2) * TRACES_PER_PAIR
    random = np.random.default_rng(1)
    present = trace_ids(random.choice(traces, _LOOKUPS, replace=False)).to_pylist()
    absent = trace_ids(traces + 1 + np.arange(_LOOKUPS)).to_pylist()
    total = sum(Path(path).stat().st_size for path in paths)
    read = [_restarted(own, lambda: _found(own, present[0])) for _ in range(max(1, min(rounds, 3)))]
    report.tell(
        _figure("by id, present, cold", statistics.median(wall for wall, _ in read), "ms", most=300.0),
        _figure("by id, present, bytes read cold", read[0][1] / total * 100, "% of the lake", most=0.5),
    )
    gone = [_restarted(own, lambda: _missing(own, absent[0])) for _ in range(max(1, min(rounds, 3)))]
    report.tell(_figure("by id, absent, cold", statistics.median(wall for wall, _ in gone), "ms", most=300.0))
    for each in present:
        _found(own, each)
    hot = sorted(_wall(partial(_found, own, each)) for each in present for _ in range(3))
    report.tell(
        _figure("by id, present, hot", statistics.median(hot), "ms", most=30.0),
        _figure("by id, present, hot, p90", hot[int(len(hot) * 0.9)], "ms", most=30.0),
    )
    gone_hot = sorted(_wall(partial(_missing, own, each)) for each in absent for _ in range(3))
    report.tell(
        _figure("by id, absent, hot", statistics.median(gone_hot), "ms", most=10.0),
        _figure("by id, absent, hot, p90", gone_hot[int(len(gone_hot) * 0.9)], "ms", most=10.0),
    )
    for name, peer in peers.items():
        sql = f"SELECT * FROM {{table}} WHERE trace_id = '{present[0]}'"  # noqa: S608
        assert len(peer(sql)) == PER_TRACE
        theirs = min(_wall(partial(peer, sql)) for _ in range(3))
        report.tell(_figure("by id, present, hot", statistics.median(hot), "ms", name, theirs, 1.0))


def _restarted(own: Lake, ask: Callable[[], int]) -> tuple[float, int]:
    """The time of the first question after a restart without caches, and the bytes that it read."""
    own.stop()
    own.forget()
    own.start()
    time.sleep(2)  # Until the work of the start is over.
    began = time.perf_counter()
    read_bytes = ask()
    return (time.perf_counter() - began) * 1e3, read_bytes


def _found(own: Lake, trace_id: str) -> int:
    """Read the whole trace, and return the bytes that were read for it."""
    response = own.send("GET", f"/api/v2/traces/{trace_id}")
    body = json.loads(response.read())
    spans = [
        span
        for resource in body["trace"]["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    assert response.status == 200 and len(spans) == PER_TRACE, f"{trace_id}: {response.status}, {len(spans)} spans"
    return int(body["metrics"]["inspectedBytes"])


def _missing(own: Lake, trace_id: str) -> int:
    response = own.send("GET", f"/api/traces/{trace_id}")
    response.read()
    assert response.status == 404, response.status
    return 0


def _wall(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3
