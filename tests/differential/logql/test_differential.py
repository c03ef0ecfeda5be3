"""What can be known without a Loki: the questions are the same again, and every query parses.

`make differential LANGUAGE=logql` asks them. Loki is a peer to be compared with, not a component of the suite.
"""

from __future__ import annotations

import json
import random

import pytest

from lakerunner.query.logql.parser import parse
from tests.differential.logql.comparing import question
from tests.differential.logql.grammar import Grammar
from tests.differential.logql.records import END_NS, START_NS, make_requests


def test_a_question_is_the_same_again() -> None:
    assert question(7, 3) == question(7, 3) != question(7, 4)


@pytest.mark.parametrize("number", range(200))
def test_every_query_parses(number: int) -> None:
    grammar = Grammar(random.Random(number))
    parse(grammar.log_query())
    parse(grammar.metric_query(2))


def test_no_two_records_have_the_same_time() -> None:
    requests = make_requests(3)
    assert requests == make_requests(3) != make_requests(4)
    times = [
        int(json.loads(request)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["timeUnixNano"])
        for request in requests
    ]
    assert len(set(times)) == len(times)
    assert min(times) >= START_NS and max(times) < END_NS
