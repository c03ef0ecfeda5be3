"""A printed tree parses to the same tree. LAKERUNNER_TEST_TREES sets how many random ones are tried."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.traceql import ast
from lakerunner.query.traceql.check import check
from lakerunner.query.traceql.parser import parse
from lakerunner.query.traceql.printer import print_query
from tests.query.traceql.trees import QUERIES

TREES = int(os.environ.get("LAKERUNNER_TEST_TREES", "300"))


@settings(max_examples=TREES, deadline=None, suppress_health_check=list(HealthCheck))
@given(QUERIES)
def test_parsing_undoes_printing(query: ast.Query) -> None:
    assert parse(print_query(query)) == query


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("{span.x=3&&span.y=9}", "{ (span.x = 3) && (span.y = 9) }"),
        ("{ span.a = 1 || span.b = 2 && span.c = 3 }", "{ ((span.a = 1) || (span.b = 2)) && (span.c = 3) }"),
        ("{ } >> { } && { }", "({ } >> { }) && { }"),
        ("{ duration > 1m30s }", "{ duration > 90000000000ns }"),
        ("{ span:duration > 1s /* comment */ }", "{ duration > 1000000000ns }"),
        ('{ span."queue lag" > -5 }', '{ span."queue lag" > -5 }'),
        ("{ 2 ^ 3 ^ 2 = 1 }", "{ (2 ^ (3 ^ 2)) = 1 }"),
        ("{ !span.a = true }", "{ (!(span.a)) = true }"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("{ span.x == 1 }", 11, "unexpected"),
        ("{ foo = 1 }", 3, "unknown identifier"),
        ("{ name = 5 }", 3, "cannot be combined"),
        ("{ status > ok }", 3, "illegal operation"),
        ('{ name =~ "a{2,1}" }', 11, ""),
        ("{ } | by(1)", 10, "refer to the span"),
        ("{ kind = nil }", 3, "never nil"),
        ("{ } | rate() | { }", 16, "topk or bottomk"),
    ],
)
def test_errors_point_at_the_place(text: str, column: int, reason: str) -> None:
    with pytest.raises(ParseError) as error:
        check(text, parse(text))
    assert error.value.column == column
    assert reason in str(error.value)
