"""Random queries to Loki and to us."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from lakerunner.model.signals.logs import LOGS
from tests.components.peers import VARIABLE, find_peer
from tests.differential.logql.comparing import Both, Question, question, recombined_question
from tests.differential.logql.loki import running_loki
from tests.differential.logql.recombined import Recombined
from tests.differential.logql.records import make_requests
from tests.differential.tally import Tally
from tests.query.logqltest.asking import Asker
from tests.query.logqltest.suite import Suite
from tests.query.served_lake import served_lake


def run(count: int, seed: int | None, only: int | None, suite: Path | None = None, topic: str = "") -> int:
    """Ask random queries over random records, or recombined queries over the records of a suite."""
    binary = find_peer("loki")
    if binary is None:
        sys.stderr.write(f"cannot compare: no `loki` on the PATH or in the folder that {VARIABLE} names\n")
        return 2
    seed = seed if seed is not None else time.time_ns() % 1_000_000
    ask: Callable[[int], Question] = partial(question, seed)
    requests = make_requests(seed)
    if suite is not None:
        ask = partial(recombined_question, Recombined(Suite(suite), topic), seed)
        requests = Suite(suite).requests
    tally = Tally(seed)
    # Queries may hold anything.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with running_loki(binary, requests, *_stored(requests)) as loki, served_lake(requests, LOGS) as own:
        both = Both(Asker(loki), Asker(own))
        for number in range(count) if only is None else [only]:
            verdict = both.ask(ask(number))
            tally.add(number, verdict.kind, verdict.disagreement)
    return tally.finish(f"{both.values:,} values")


def _stored(requests: Sequence[bytes]) -> tuple[int, int]:
    """How many records Loki will have, which keeps one of exact repeats, and a time after the last."""
    records, latest_ns = set(), 0
    for request in requests:
        for resource in json.loads(request)["resourceLogs"]:
            for scope in resource["scopeLogs"]:
                for record in scope["logRecords"]:
                    records.add(json.dumps((resource["resource"], scope.get("scope"), record), sort_keys=True))
                    times = (int(record.get(name, 0)) for name in ("timeUnixNano", "observedTimeUnixNano"))
                    latest_ns = max(latest_ns, next(filter(None, times), 0))
    return len(records), latest_ns
