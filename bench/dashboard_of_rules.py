"""A dashboard of 20 panels over a day of logs, from raw rows and from materialization rules: CPU time of each.

`python -m bench dashboard_of_rules [--quick]` prints one JSON line per panel and one for all of them. A day of demo
lines is written as 24 segments, rules are evaluated over them by the code that ingest runs, and their series are rolled
up by the code of the rollup. All answers of a panel are compared before they are timed; what differs fails the run.
Times are CPU milliseconds of this process, all threads, the least of several runs without a cached answer; compiling
and deciding what to rewrite are included. Hot: everything was read before. Cold: nothing is cached.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakerunner.formats.attributes import with_keys
from lakerunner.model.compute import Compute
from lakerunner.model.segment import Segment
from lakerunner.model.signals import LOGS, METRICS
from lakerunner.model.signals.logs import LEVEL
from lakerunner.model.time import NS_PER_HOUR, NS_PER_MS, TimeRange
from lakerunner.pipeline.derive.rule_set import RuleEvaluation, RuleSet
from lakerunner.pipeline.derive.rule_set import RuleVersion as EvaluatedVersion
from lakerunner.pipeline.derive.spans import metric_tables
from lakerunner.pipeline.ordering import sorted_table
from lakerunner.pipeline.rollup.task import RollupTask, run_rollup
from lakerunner.pipeline.split import parts
from lakerunner.pipeline.write_part import write_part
from lakerunner.query.fanout.open import local_workers
from lakerunner.query.lake_query import LakeQuery, QueryLimits
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.plan.planner import Planner
from lakerunner.query.plan.snapshots import Looked
from lakerunner.query.plan.tiers import TierStretch
from lakerunner.query.rules.rewriter import Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.ruled_plan import RuledSteps
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult, QueryResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.rules.definitions import Materialize
from lakerunner.runtime.settings import DataSettings, Settings
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store

ORG = uuid.UUID(int=1)
START_NS = 1_790_000_000 // 86_400 * 86_400 * 10**9
HOURS, SERVICES, ROUTES = 24, 20, 50
KEY = bytes(16)
#: Every how manyth panel is also timed cold.
_COLD_PANELS = 5

#: Name, match, dimensions, compute, field.
RULES = (
    ("lines_total", '{service_name=~".+"}', ("service_name", "detected_level"), Compute.COUNT, ""),
    ("routes_total", '{service_name=~".+"}', ("service_name", "route"), Compute.COUNT, ""),
    ("line_bytes_total", '{service_name=~".+"}', ("service_name",), Compute.BYTES, ""),
    ("refused_total", '{service_name=~".+"} |= "refused"', ("service_name", "route"), Compute.COUNT, ""),
    ("took_total", '{service_name=~".+"}', ("service_name", "route"), Compute.SUM, "took"),
    ("took_max", '{service_name=~".+"}', ("service_name", "route"), Compute.MAX, "took"),
)
ALL = '{service_name=~".+"}'
PANELS = (
    f"sum(rate({ALL}[10m]))",
    f"sum by (service_name) (rate({ALL}[10m]))",
    f"sum by (detected_level) (count_over_time({ALL}[10m]))",
    f"sum by (route) (count_over_time({ALL}[10m]))",
    f"sum by (service_name, detected_level) (count_over_time({ALL}[10m]))",
    'sum(count_over_time({service_name="s3"}[10m]))',
    'sum by (route) (rate({service_name="s3"}[10m]))',
    'sum by (detected_level) (rate({service_name=~"s1|s2"}[10m]))',
    f'sum(rate({ALL} | detected_level="error" [10m])) / sum(rate({ALL}[10m]))',
    f'sum by (service_name) (rate({ALL} | detected_level="error" [10m])) / sum by (service_name) (rate({ALL}[10m]))',
    f"topk(5, sum by (route) (count_over_time({ALL}[1h])))",
    f"sum by (service_name) (bytes_rate({ALL}[10m]))",
    f"sum(bytes_over_time({ALL}[1h]))",
    f'sum(count_over_time({ALL} |= "refused" [10m]))',
    f'sum by (service_name) (count_over_time({ALL} |= "refused" [10m]))',
    f'topk(3, sum by (route) (rate({ALL} |= "refused" [10m])))',
    f"sum by (service_name) (sum_over_time({ALL} | unwrap took [10m]))",
    f"sum(sum_over_time({ALL} | unwrap took [10m])) / sum(count_over_time({ALL}[10m]))",
    f"max by (route) (max_over_time({ALL} | unwrap took [10m]))",
    'max(max_over_time({service_name="s3"} | unwrap took [10m]))',
)


def rows_of_hour(hour: int, size: int) -> pa.Table:
    rng = np.random.default_rng(hour)
    times = np.sort(START_NS + hour * NS_PER_HOUR + rng.integers(1, NS_PER_HOUR, size))
    services = np.array([f"s{n}" for n in range(SERVICES)])[rng.zipf(1.5, size) % SERVICES]
    texts = np.array(["order placed", "payment refused", "cart updated", "cache miss"], dtype=object)
    message = (
        texts[rng.choice(4, size, p=(0.5, 0.02, 0.28, 0.2))] + " for user " + rng.integers(0, 10**6, size).astype(str)
    )
    level = rng.choice(["info", "warn", "error"], size, p=(0.9, 0.07, 0.03))
    columns = {
        "timestamp": pa.array(times).cast(pa.timestamp("ns", "UTC")),
        "service_name": pa.array(services),
        LEVEL: pa.array(level),
        "message": pa.array(message.tolist()),
        "attr_route": pa.array([f"/r{n}" for n in rng.integers(0, ROUTES, size)]),
        "attr_took": pa.array(rng.integers(1, 2_000, size)),
    }
    schema = LOGS.rows.schema()
    for name, kind in (("attr_route", pa.string()), ("attr_took", pa.int64())):
        schema = schema.append(pa.field(name, kind))
    arrays = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(size, f.type) for f in schema]
    table = pa.Table.from_arrays(arrays, schema=schema)
    table = with_keys(table, {"attr_route": ["route"], "attr_took": ["took"]})
    return sorted_table(table, LOGS.rows.sort_key)


class Day:
    """A day of lines, and what rules made of them."""

    def __init__(self, folder: Path, rows_per_hour: int) -> None:
        self.settings = Settings(data=DataSettings(dir=folder))
        self.config = StoreConfig.of(self.settings)
        store = open_store(self.config)
        self.versions = [
            RuleVersion(n, 1, name, LOGS.name, match, tuple((each, each) for each in dimensions), compute, field)
            for n, (name, match, dimensions, compute, field) in enumerate(RULES, 1)
        ]
        evaluated = tuple(
            EvaluatedVersion(
                n, 1, Materialize(name, LOGS.name, match, dimensions, Compute(str(compute)), field, 100_000)
            )
            for n, (name, match, dimensions, compute, field) in enumerate(RULES, 1)
        )
        self.segments: list[Segment] = []
        self.stretches: list[TierStretch] = []
        for hour in range(HOURS):
            rows = rows_of_hour(hour, rows_per_hour)
            self.segments.append(write_part(ORG, "c", LOGS, {"": rows}, store, time.time_ns()))
            evaluation = RuleEvaluation(RuleSet(ORG, LOGS.name, 1, evaluated))
            evaluation.add(rows)
            found = evaluation.result(hour, KEY)
            assert not found.troubles, found.troubles
            assert found.derived is not None
            tables = metric_tables([found.derived])
            assert tables is not None
            made = [
                write_part(ORG, "c", METRICS, part, store, time.time_ns())
                for part in parts(METRICS, tables, time.time_ns())
            ]
            self.segments += made
            self._roll_up(hour, made)
        self.workers = local_workers(self.settings, "bench")

    def _roll_up(self, hour: int, made: list[Segment]) -> None:
        start_ns = START_NS + hour * NS_PER_HOUR
        # Rows of a window: open at its start, closed at its end, in milliseconds.
        rows = TimeRange(start_ns + NS_PER_MS, start_ns + NS_PER_HOUR + NS_PER_MS)
        result = run_rollup(RollupTask(uuid.uuid4(), ORG, rows, (60, 300), tuple(made), self.config))
        if result.error is not None:
            raise result.error
        self.segments += result.segments
        self.stretches += [TierStretch(tier_s, start_ns, start_ns + NS_PER_HOUR) for tier_s in (60, 300)]

    def lookup(self, *_: object) -> Looked:
        """What the index would say."""
        return Looked(self.segments, stretches=self.stretches)

    def cold(self) -> None:
        """Forget everything that was read."""
        self.workers.close()
        self.workers = local_workers(self.settings, "bench")

    def answer(self, text: str, *, by_rules: bool) -> QueryResult:
        start_ms = START_NS // NS_PER_MS
        times = QueryTimes(start_ms + 3_600_000, start_ms + HOURS * 3_600_000, 600_000)
        plan = language("logql").compile(text, times, QueryOptions())
        if by_rules:
            considered = Rewriter().consider(plan, self.versions)
            assert considered is not None
            plan, notes = considered.decided(dict.fromkeys(considered.wants, ()))
            assert isinstance(plan, RuledSteps), notes
        planner = Planner(self, ORG)  # type: ignore[arg-type]
        source = LakeQuery(ORG, planner, self.workers, QueryLimits())
        source.prepare(plan.leaves)
        return run(plan, source, lambda: None)

    def cpu_ms(self, text: str, rounds: int, *, by_rules: bool, cold: bool = False) -> float:
        best = float("inf")
        for _ in range(rounds):
            if cold:
                self.cold()
            began = time.process_time()
            self.answer(text, by_rules=by_rules)
            best = min(best, time.process_time() - began)
        return best * 1000


def _same(raw: QueryResult, ruled: QueryResult) -> bool:
    def cells(result: QueryResult) -> dict[tuple[str, int], float]:
        assert isinstance(result.value, MatrixResult)
        return {
            (str(each.labels), int(at)): float(value)
            for each in result.value
            for at, value in zip(each.timestamps_ms, each.values, strict=True)
        }

    left, right = cells(raw), cells(ruled)
    return (
        bool(left)
        and left.keys() == right.keys()
        and all(abs(value - right[cell]) <= 1e-12 * abs(value) for cell, value in left.items())
    )


def _say(case: str, value: float, peer: float) -> None:
    line = {
        "bench": "dashboard_of_rules",
        "case": case,
        "value": round(value, 2),
        "unit": "ms CPU",
        "better": "lower",
        "peer": "the same from raw rows",
        "peer_value": round(peer, 2),
        "ratio": round(value / peer, 4),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench dashboard_of_rules", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the lines: does it work at all")
    parser.add_argument("--rows", type=int, default=200_000, help="lines per hour (default 200,000)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of a panel, of which the fastest counts")
    options = parser.parse_args()
    failed = 0
    totals = {"hot": [0.0, 0.0], "cold": [0.0, 0.0]}
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as folder:
        day = Day(Path(folder), options.rows // 10 if options.quick else options.rows)
        for number, text in enumerate(PANELS, 1):
            if not _same(day.answer(text, by_rules=False), day.answer(text, by_rules=True)):
                failed += 1
                sys.stderr.write(f"panel {number} differs: {text}\n")
                continue
            for state, total in totals.items():
                if state == "cold" and number % _COLD_PANELS != 1:
                    continue
                rounds = 1 if state == "cold" else options.rounds
                raw = day.cpu_ms(text, rounds, by_rules=False, cold=state == "cold")
                ruled = day.cpu_ms(text, rounds, by_rules=True, cold=state == "cold")
                total[0] += ruled
                total[1] += raw
                _say(f"{state}, panel {number}: {text}", ruled, raw)
        day.workers.close()
    for state, (ours, theirs) in totals.items():
        if theirs:
            _say(f"{state}, all panels that were timed", ours, theirs)
    return 1 if failed else 0
