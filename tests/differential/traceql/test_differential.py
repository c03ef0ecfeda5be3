"""Brute force reads the language as it is documented, and the questions are the same again.

`make differential LANGUAGE=traceql` asks a lake random queries about the traces of a suite.
"""

from __future__ import annotations

import json
import random

import pytest

from lakerunner.query.traceql import ast
from lakerunner.query.traceql.language import compiled
from tests.differential.traceql import naive
from tests.differential.traceql.grammar import Grammar
from tests.differential.traceql.traces import Trace, traces_of


def _attribute(key: str, value: dict[str, object]) -> dict[str, object]:
    return {"key": key, "value": value}


def _traces() -> list[Trace]:
    """One trace: a root with two children, of which one has events."""
    tags = {"arrayValue": {"values": [{"stringValue": "x"}, {"stringValue": "y"}]}}
    spans = [
        {"spanId": "a", "name": "top", "kind": 2, "attributes": [_attribute("n", {"intValue": "3"})]},
        {"spanId": "b", "parentSpanId": "a", "name": "one", "attributes": [_attribute("tags", tags)]},
        {
            "spanId": "c",
            "parentSpanId": "a",
            "name": "two",
            "status": {"code": 2},
            "attributes": [_attribute("n", {"doubleValue": 1.5})],
            "events": [
                {"name": "e", "timeUnixNano": "5", "attributes": [_attribute("k", {"intValue": str(k)})]}
                for k in (1, 2)
            ],
        },
    ]
    for at, span in enumerate(spans):
        span.update(traceId="1", startTimeUnixNano=str(at), endTimeUnixNano=str(10 * (at + 1)))
    resource = {"attributes": [_attribute("service.name", {"stringValue": "shop"})]}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {}, "spans": spans}]}]}
    return traces_of([json.dumps(request).encode()])


@pytest.mark.parametrize(
    ("query", "sets"),
    [
        ("{ span.n >= 1.5 }", [["a", "c"]]),
        ("{ span.n != 3 }", [["c"]]),
        ("{ span.n = nil }", [["b"]]),
        ('{ span.tags = "y" }', [["b"]]),
        ('{ span.tags != "z" && .service.name =~ "sh.*" }', [["b"]]),
        ("{ event.k = 1 && event.k = 2 }", []),
        ("{ event.k = 1 } && { event.k = 2 }", [["c"]]),
        ('{ name = "top" } > { status = error }', [["c"]]),
        ('{ name = "one" } ~ { }', [["c"]]),
        ("{ kind = server } !> { }", [["a"]]),
        ("{ } | by(status) | count() = 1", [["c"]]),
        ("{ } | sum(span.n) = 4.5", [["a", "b", "c"]]),
        ("{ } | avg(duration) > 1h", []),
    ],
)
def test_brute_force(query: str, sets: list[list[str]]) -> None:
    root = compiled(query).root
    assert isinstance(root, ast.Pipeline)
    assert [*naive.search(root, _traces()).values()] == ([sets] if sets else [])


def test_metrics_by_brute_force() -> None:
    root = compiled("{ } | max_over_time(span.n) by (resource.service.name)").root
    assert isinstance(root, ast.Metric)
    assert naive.metric(root, _traces(), 0, 60, 60) == {((ast.STRING, "shop"),): {0: 3.0, 60: 1.5}}


def test_questions_are_the_same_again_and_parse() -> None:
    grammar = Grammar(_traces())
    questions = [grammar.search(random.Random(number)) for number in range(60)]
    assert questions == [grammar.search(random.Random(number)) for number in range(60)]
    for text in (*questions, *(grammar.metric(random.Random(number)) for number in range(60))):
        compiled(text)
