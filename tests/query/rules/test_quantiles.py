"""Quantiles that a rule's histograms answer lie within the stated error of a value of that rank."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

from lakerunner.model.compute import Compute
from lakerunner.model.signals import LOGS
from lakerunner.query.language import QueryOptions
from lakerunner.query.languages import language
from lakerunner.query.rules.rewriter import Rewriter
from lakerunner.query.rules.rule import RuleVersion
from lakerunner.query.rules.ruled_plan import RuledSteps
from lakerunner.query.run import run
from lakerunner.query.series.results import VectorResult
from lakerunner.query.series.times import QueryTimes
from tests.query.rules.rewrites.records import START_NS
from tests.query.rules.rewrites.small_lake import SmallLake

#: One bucket of eight per power of two.
PAIR = ("service_name", "service_name")
ERROR = 2 ** (1 / 8)


def request(values: list[float]) -> bytes:
    records = [
        {
            "timeUnixNano": str(START_NS + 1 + at * 10_000_000),
            "body": {"stringValue": f"line {at}"},
            "attributes": [{"key": "took", "value": {"doubleValue": value}}],
        }
        for at, value in enumerate(values)
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "api"}}]}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}).encode()


def test_quantiles_of_histograms_lie_beside_values_of_their_rank(tmp_path: Path) -> None:
    rng = random.Random(7)
    values = [rng.choice((0.0, rng.lognormvariate(0, 3), -rng.random())) for _ in range(200)]
    rule = RuleVersion(1, 1, "took", "logs", '{service_name="api"}', (PAIR,), Compute.HISTOGRAM, "took")
    lake = SmallLake(tmp_path)
    try:
        lake.ingest(LOGS, [request(values)], [rule])
        at_ms = START_NS // 1_000_000 + 60_000
        for q in (0.05, 0.5, 0.9, 0.99):
            text = f'quantile_over_time({q}, {{service_name="api"}} | unwrap took [1m]) by (service_name)'
            plan = language("logql").compile(text, QueryTimes(at_ms, at_ms, 0), QueryOptions(approximate=True))
            considered = Rewriter().consider(plan, [rule])
            assert considered is not None
            ruled, notes = considered.decided(dict.fromkeys(considered.wants, ()))
            assert isinstance(ruled, RuledSteps) and ruled.approximate, notes
            source = lake.source()
            source.prepare(ruled.leaves)
            result = run(ruled, source, lambda: None)
            assert isinstance(result.value, VectorResult)
            assert any("within 9.1%" in warning for warning in result.warnings)
            rank = q * (len(values) - 1)
            low, high = np.sort(values)[[int(np.floor(rank)), int(np.ceil(rank))]]
            found = float(result.value.values[0])
            assert min(low * ERROR, low / ERROR) - 1e-9 <= found <= max(high * ERROR, high / ERROR) + 1e-9
    finally:
        lake.close()
