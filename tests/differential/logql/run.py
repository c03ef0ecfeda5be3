"""Random queries to Loki and to us."""

from __future__ import annotations

import sys
import time

from tests.components.peers import VARIABLE, find_peer
from tests.differential.logql.comparing import Both, question
from tests.differential.logql.loki import running_loki
from tests.differential.logql.records import make_requests
from tests.differential.tally import Tally
from tests.query.logqltest.asking import Asker
from tests.query.logqltest.serving import served_records


def run(count: int, seed: int | None, only: int | None) -> int:
    binary = find_peer("loki")
    if binary is None:
        sys.stderr.write(f"cannot compare: no `loki` on the PATH or in the folder that {VARIABLE} names\n")
        return 2
    seed = seed if seed is not None else time.time_ns() % 1_000_000
    requests = make_requests(seed)
    tally = Tally(seed)
    # Queries may hold anything.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with running_loki(binary, requests) as loki, served_records(requests) as own:
        both = Both(Asker(loki), Asker(own))
        for number in range(count) if only is None else [only]:
            verdict = both.ask(question(seed, number))
            tally.add(number, verdict.kind, verdict.disagreement)
    return tally.finish(f"{both.values:,} values")
