"""Ingest killed while it derives metrics: every call and span is counted once after the next worker did the items."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pyarrow.compute as pc
import pytest

from lakerunner.model.signals import METRICS, TRACES
from lakerunner.pipeline.rule_changes import apply_groups
from lakerunner.rules.file import read_rules
from lakerunner.runtime.crash import VARIABLE
from tests.pipeline.derive.crashing import work_off
from tests.pipeline.derive.test_service_graph import batch_of, brute_force, counted, spans_of
from tests.pipeline.lake import ORG, Lake, loaded

#: The number says at which passing: the first items are then committed with their halves.
POINTS = ["derive_after_write:2", "derive_after_complete:2", "before_commit:2", "after_commit:2"]


@pytest.mark.parametrize("point", POINTS)
def test_every_call_is_counted_once(lake: Lake, point: str) -> None:
    rules = "groups: [{name: g, rules: [{materialize: spans_total, signal: traces, match: '{ }'}]}]"
    apply_groups(lake.database, ORG, read_rules(rules), "tests", max_rules=1)
    rng = random.Random(7)
    spans = spans_of(rng, 20, time.time_ns() // 10**10 * 10**10 - 600 * 10**9)
    rng.shuffle(spans)
    third = len(spans) // 3
    for part in (spans[:third], spans[third : 2 * third], spans[2 * third :]):
        loaded(lake, lake.put(TRACES, batch_of(part)))
    killed = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.derive.crashing", lake.settings.index.url, lake.settings.data.dir],
        env={**os.environ, VARIABLE: point},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2_000:]
    work_off(lake.settings, lake.database)
    calls, failed = brute_force(spans)
    assert counted(lake, "traces_service_graph_request_total") == calls
    assert counted(lake, "traces_service_graph_request_failed_total") == failed
    samples = lake.rows(METRICS)
    of_rule = samples.filter(pc.equal(samples.column("metric_name"), "spans_total"))
    assert pc.sum(of_rule.column("value")).as_py() == len(spans) == lake.row_count(TRACES)
