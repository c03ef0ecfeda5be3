"""Tree to text and back. `LAKERUNNER_TEST_TREES=10000` tries so many random trees."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from lakerunner.query.logql.ast import Expr
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.pretty import pretty
from lakerunner.query.logql.printer import print_expr
from tests.query.logql.trees import queries

_TREES = int(os.environ.get("LAKERUNNER_TEST_TREES", "100"))


@given(queries)
@settings(max_examples=_TREES, suppress_health_check=list(HealthCheck))
def test_printed_trees_parse_to_themselves(expr: Expr) -> None:
    assert parse(print_expr(expr)) == expr
    assert parse(pretty(expr)) == expr


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ('{ a = "b" ,c=~`d` }|= "x" or ip("::1")', '{a="b", c=~"d"} |= "x" or ip("::1")'),
        ('{a="b"} != "x" or "y"', '{a="b"} != "x" != "y"'),
        ('{a="b"} | json x, y="z.w" | x > 3KiB or y <= 90s', '{a="b"} | json x="x",y="z.w" | ( x>3072B or y<=1m30s )'),
        # A pattern that is no plain search is in backticks, unless it has one.
        ('{a=~"[b]c*"} | x=~"[ab]" | y!~"[ab]"', '{a=~"[b]c*"} | x=~`[ab]` | y!~"[ab]"'),
        ('{a="b"} | x=~"a.*" | y=~"[ab]`" | z=~"\\\\d"', '{a="b"} | x=~"a.*" | y=~"[ab]`" | z=~`\\d`'),
        ('{a="b"} | LOGFMT --keep-empty --strict k', '{a="b"} | logfmt --strict --keep-empty k="k"'),
        ('{a="b"} | x = 1 y == 2, z != -0.5', '{a="b"} | ( x==1 , ( y==2 , z!=-0.5 ) )'),
        ('rate(({a="b"} |= "x")[5m] offset 1h)', 'rate({a="b"} |= "x"[5m] offset 1h0m0s)'),
        ('sum by () (rate({a="b"}[300s]))', 'sum(rate({a="b"}[5m]))'),
        ('avg_over_time({a="b"}[1d] | unwrap bytes(n)) by ()', 'avg_over_time({a="b"} | unwrap bytes(n)[1d]) by ()'),
        ("1 + 2 * 3 ^ 2", "19"),
        ("-2 ^ 2", "4"),
        ("vector(1) - (vector(2) - vector(3)) * 1e21", "vector(1) - (vector(2) - vector(3)) * 1e+21"),
        ("1 / 0 + vector(1)", "(0 / 0) + vector(1)"),
        (
            "vector(1) * ON (a,b) Group_Left vector(2)",
            "vector(1) * on (a,b) group_left vector(2)",
        ),
    ],
)
def test_canonical_text(text: str, printed: str) -> None:
    assert print_expr(parse(text)) == printed


def test_the_text_for_people_has_parentheses_around_operations() -> None:
    assert pretty(parse("vector(1)+vector(2) > bool on(a) 3")) == (
        "((vector(1.000000) + vector(2.000000)) > bool on (a)  3)"
    )


def test_a_long_query_is_spread_over_lines() -> None:
    text = (
        'topk(3, sum by (service_name, level) (rate({service_name="checkout", deployment_environment="prod"} '
        '|= "payment" != "healthz" | json | latency_ms > 250 | unwrap duration(latency) | __error__="" [5m] '
        "offset 1h))) / on (service_name) group_left (level) vector(1)"
    )
    assert (
        pretty(parse(text))
        == """\
  topk(
    3,
    sum by (service_name, level)(
      rate(
        {service_name="checkout", deployment_environment="prod"}
          |= "payment" != "healthz"
          | json
          | latency_ms>250
          | unwrap duration(latency)
          | __error__="" [5m] offset 1h
      )
    )
  )
/ on (service_name) group_left (level)
  vector(1.000000)"""
    )


def test_decolorize_is_not_indented() -> None:
    text = '{service_name="checkout", deployment_environment="prod"} | decolorize | logfmt | level="warn" | took > 3s'
    lines = pretty(parse(text)).split("\n")
    assert lines[1:3] == ["| decolorize", "  | logfmt"]
