"""Random expressions to Prometheus and to us."""

from __future__ import annotations

import sys
import time

from tests.components.peers import VARIABLE, find_peer
from tests.differential.promql.comparing import Both, question
from tests.differential.promql.dataset import make_dataset, memory_source
from tests.differential.promql.peer import running_prometheus
from tests.differential.tally import Tally
from tests.query.engine import Engine


def run(count: int, seed: int | None, only: int | None) -> int:
    binary = find_peer("prometheus")
    if binary is None:
        sys.stderr.write(f"cannot compare: no `prometheus` on the PATH or in the folder that {VARIABLE} names\n")
        return 2
    seed = seed if seed is not None else time.time_ns() % 1_000_000
    series = make_dataset(seed)
    tally = Tally(seed)
    with running_prometheus(binary) as peer:
        peer.load(series)
        both = Both(peer, Engine(memory_source(series)))
        for number in range(count) if only is None else [only]:
            verdict = both.ask(question(seed, number))
            tally.add(number, verdict.kind, verdict.disagreement)
    return tally.finish(f"{both.values:,} values")
