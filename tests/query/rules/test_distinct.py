"""Numbers of different values by rules: end to end, within the stated error, whatever the parts that they come in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model import distinct
from lakerunner.model.compute import Compute
from lakerunner.model.errors import BadInput
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

PAIR = ("service_name", "service_name")
RULE = RuleVersion(1, 1, "users", "logs", '{service_name=~".+"}', (PAIR,), Compute.DISTINCT, "user")
#: Three standard errors.
WITHIN = 3 * distinct.STANDARD_ERROR
AT_MS = START_NS // 1_000_000 + 60_000


def estimate(texts: list[str]) -> float:
    buckets = np.unique(distinct.buckets_of(pa.array(texts, pa.string())))
    return float(distinct.estimates(np.zeros(len(buckets), np.int64), buckets, 1)[0])


@pytest.mark.parametrize("size", [0, 1, 2, 10, 1_000, 30_000, 300_000])
def test_estimates_are_within_the_stated_error(size: int) -> None:
    found = estimate([f"user-{number}" for number in range(size)])
    assert abs(found - size) <= WITHIN * size


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), max_size=40), max_size=4))
def test_the_union_of_parts_is_the_whole(parts: list[list[str]]) -> None:
    whole = np.unique(distinct.buckets_of(pa.array([text for part in parts for text in part], pa.string())))
    kept = []
    for part in parts:
        buckets, counts = np.unique(distinct.buckets_of(pa.array(part, pa.string())), return_counts=True)
        _, highest, _ = distinct.highest(np.zeros(len(buckets), np.int64), buckets, counts.astype(float))
        kept.append(highest)
    union = np.unique(np.concatenate([*kept, np.zeros(0, np.int64)])).astype(np.int64)
    expected = distinct.estimates(np.zeros(len(whole), np.int64), whole, 1)
    assert distinct.estimates(np.zeros(len(union), np.int64), union, 1) == expected


def request(service: str, users: list[str | None], second: int) -> bytes:
    records = [
        {
            "timeUnixNano": str(START_NS + 1 + second * 10**9 + at * 1_000),
            "body": {"stringValue": f"line {at}"},
            "attributes": [] if user is None else [{"key": "user", "value": {"stringValue": user}}],
        }
        for at, user in enumerate(users)
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": records}]}]}).encode()


def answer(lake: SmallLake, name: str, text: str, *, by_rule: bool) -> tuple[dict[str, float], list[str]]:
    plan = language(name).compile(text, QueryTimes(AT_MS, AT_MS, 0), QueryOptions(approximate=True))
    if by_rule:
        considered = Rewriter().consider(plan, [RULE])
        assert considered is not None
        ruled, notes = considered.decided(dict.fromkeys(considered.wants, ()))
        assert isinstance(ruled, RuledSteps) and ruled.approximate, notes
        plan = ruled
    source = lake.source()
    source.prepare(plan.leaves)
    result = run(plan, source, lambda: None)
    assert isinstance(result.value, VectorResult)
    values = {str(labels): float(value) for labels, value in zip(result.value.labels, result.value.values, strict=True)}
    return values, result.warnings


def test_a_rule_counts_different_values_of_late_and_repeated_lines(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    try:
        many = [f"u{number}" for number in range(600)]
        lake.ingest(LOGS, [request("api", [*many[:400], None], 0), request("cart", ["a", "b", "a"], 3)], [RULE])
        lake.ingest(LOGS, [request("api", [*many[300:], "", None], 17)], [RULE])
        inner = 'count_over_time({service_name=~".+"} | user!="" [1m])'
        by_service = f"count by (service_name) (sum by (service_name, user) ({inner}))"
        exact, _ = answer(lake, "logql", by_service, by_rule=False)
        found, warnings = answer(lake, "logql", by_service, by_rule=True)
        assert exact == {'{service_name="api"}': 600.0, '{service_name="cart"}': 2.0}
        assert found['{service_name="cart"}'] == 2.0
        assert abs(found['{service_name="api"}'] - 600) <= WITHIN * 600
        assert any("standard error of 1.6%" in warning for warning in warnings)
        asked = "histogram_distinct(sum by (service_name) (sum_over_time(users[1m])))"
        for compacted in (False, True):
            if compacted:
                lake.compact()
            assert answer(lake, "promql", asked, by_rule=False)[0] == found
        # Scaling changes no register, so that rates of sketches are as good as sums.
        assert answer(lake, "promql", "histogram_distinct(increase(users[1m]))", by_rule=False)[0] == found
        everyone = f"count(sum by (user) ({inner}))"
        assert abs(answer(lake, "logql", everyone, by_rule=True)[0]["{}"] - 602) <= WITHIN * 602
    finally:
        lake.close()


def test_other_histograms_have_no_different_values(tmp_path: Path) -> None:
    took = RuleVersion(2, 1, "took", "logs", '{service_name=~".+"}', (), Compute.HISTOGRAM, "user")
    lake = SmallLake(tmp_path)
    try:
        lake.ingest(LOGS, [request("api", ["1", "2"], 0)], [took])
        with pytest.raises(BadInput, match="series of rules that compute distinct"):
            answer(lake, "promql", "histogram_distinct(sum_over_time(took[1m]))", by_rule=False)
    finally:
        lake.close()
