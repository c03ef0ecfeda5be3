"""Rules that are suggested answer the queries they name, as the guards say, and can be applied as they are."""

from __future__ import annotations

import uuid

import pytest

from lakerunner.index.query_log import LoggedQuery
from lakerunner.rules.check import require_valid
from lakerunner.rules.file import read_rules
from lakerunner.rules.suggest import suggest, to_file

ORG = uuid.UUID(int=7)


def logged(
    query: str, cpu_s: float = 1.0, language: str = "logql", range_s: int = 3600, step_s: int = 60
) -> LoggedQuery:
    return LoggedQuery(
        ORG,
        language,
        query,
        range_s * 1000,
        step_s * 1000,
        "grafana",
        asked=10,
        rows_read=1000,
        bytes_read=5000,
        cpu_s=cpu_s,
    )


def test_queries_that_differ_in_a_value_share_a_rule() -> None:
    queries = [
        logged(f'sum by (route) (rate({{service_name="{name}"}} |= "error" [5m]))', 3.0) for name in ("cart", "shop")
    ]
    queries.append(logged('sum by (region) (count_over_time({service_name="cart"} |= "error" [1m]))', 2.0))
    queries.append(logged('max by (route) (max_over_time({service_name="cart"} | json | unwrap ms [5m]))', 0.5))
    made, unanswered = suggest(queries, ())
    wide, narrow = made
    assert wide.rule.match == '{service_name=~".+"} |= "error"'
    assert wide.rule.dimensions == ("region", "route", "service_name")
    assert [each.query for each in wide.queries] == [each.query for each in queries[:3]]
    assert (wide.cpu_s, wide.rows_read, wide.asked) == (8.0, 3000, 30)
    assert str(narrow.rule.compute) == "max" and narrow.rule.field == "ms" and narrow.cpu_s == 0.5
    assert unanswered == []
    text = to_file(made, 7)
    groups = read_rules(text)
    require_valid(groups)
    assert [rule.name for rule in groups[0].materialized] == [wide.rule.name, narrow.rule.name]
    assert "asked 30 times in 7 days: 3,000 rows, 15,000 bytes, 8.00 s" in text


def test_a_query_of_two_parts_is_answered_part_by_part() -> None:
    query = 'sum(rate({service_name="a"} |= "error" [5m])) / sum(rate({service_name="a"}[5m]))'
    made, _ = suggest([logged(query, 4.0)], ())
    assert sorted(each.cpu_s for each in made) == [2.0, 2.0]
    assert len({each.rule.name for each in made}) == 2


def test_spans_are_suggested_too() -> None:
    queries = [
        logged(f'{{ resource.service.name = "{name}" && status = error }} | rate() by (name)', language="traceql")
        for name in ("cart", "shop")
    ]
    (only,), unanswered = suggest(queries, ())
    assert only.rule.match == "{ (status = error) }" and only.rule.dimensions == ("name", "resource.service.name")
    assert len(only.queries) == 2 and unanswered == []
    require_valid(read_rules(to_file([only], 7)))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (logged('sum(rate({a="b"}[5m]))', step_s=7), "10 s"),
        (logged('topk(3, rate({a="b"}[5m]))'), "does not follow"),
        (logged('sum by (trace_id) (rate({a="b"}[5m]))'), "without a bound"),
        (logged('sum(rate({a="b"} |= "token=***"[5m]))'), "masked"),
        (logged('sum(rate({a="b"}'), "cannot be compiled"),
    ],
)  # fmt: skip
def test_what_no_rule_answers_is_said(query: LoggedQuery, reason: str) -> None:
    made, unanswered = suggest([query], ())
    assert made == [] and reason in unanswered[0].reason, unanswered


def test_metrics_need_no_rule() -> None:
    assert suggest([logged("sum(rate(up[5m]))", language="promql")], ()) == ([], [])
