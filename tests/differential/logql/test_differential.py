"""What can be known without a Loki: the questions are the same again, and every query parses.

`make differential LANGUAGE=logql` asks them. Loki is a peer to be compared with, not a component of the suite.
"""

from __future__ import annotations

import json
import random

import pytest

from lakerunner.query.logql.parser import parse
from tests.differential.logql.comparing import question, recombined_question
from tests.differential.logql.grammar import Grammar
from tests.differential.logql.recombined import Recombined, is_accident
from tests.differential.logql.records import END_NS, START_NS, make_requests
from tests.query.logqltest.suite import find_suite


def test_a_question_is_the_same_again() -> None:
    assert question(7, 3) == question(7, 3) != question(7, 4)


@pytest.mark.parametrize("number", range(200))
def test_every_query_parses(number: int) -> None:
    grammar = Grammar(random.Random(number))
    parse(grammar.log_query())
    parse(grammar.metric_query(2))


@pytest.mark.parametrize(
    ("query", "accident"),
    [
        ('{service_name="a"} | json | level="x"', False),
        ('{service_name="a"} | json | drop level | level="x"', True),
        ('{service_name="a"} | json | drop other | level="x"', False),
        ('{service_name="a"} | json | __error__="" | size > 3', True),
        ('{service_name="a"} | level="x" | json', True),
        ('{order="a"} | json', True),
        ('rate({service_name="a"} | json [1m])', True),
        ('rate({service_name="a"} | json | __error__="" [1m])', False),
    ],
)
def test_accidents_of_loki_are_left_out(query: str, accident: bool) -> None:
    assert is_accident(parse(query)) is accident


def test_recombined_queries_are_the_same_again_and_parse() -> None:
    suite = find_suite()
    if suite is None:
        pytest.skip("the recorded suite is not beside the repository")
    parts = Recombined(suite, "label_format")
    questions = [recombined_question(parts, 1, number) for number in range(30)]
    assert questions == [recombined_question(parts, 1, number) for number in range(30)]
    for each in questions:
        if not each.mutated:
            parse(each.case.params["query"])


def test_no_two_records_have_the_same_time() -> None:
    requests = make_requests(3)
    assert requests == make_requests(3) != make_requests(4)
    times = [
        int(json.loads(request)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["timeUnixNano"])
        for request in requests
    ]
    assert len(set(times)) == len(times)
    assert min(times) >= START_NS and max(times) < END_NS
