"""A slice of the recorded answers, asked of a real lake over HTTP. `make logqltest` asks all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from lakerunner.model.signals.logs import LOGS
from tests.components.missing import missing
from tests.query.logqltest.__main__ import difference
from tests.query.logqltest.asking import Asker
from tests.query.logqltest.suite import VARIABLE, Case, cases_of, differences, find_suite
from tests.query.served_lake import served_lake

#: Every so manieth case of a topic is asked.
SLICE = 15


def _slice() -> list[Case]:
    suite = find_suite()
    if suite is None:
        return []
    excused = differences()
    chosen = [case for path in suite.topics() for case in cases_of(path)[::SLICE]]
    return [case for case in chosen if not case.is_quirk and not {case.case_id, case.path} & excused.keys()]


def test_the_suite_is_there() -> None:
    if find_suite() is None:
        message = f"the recorded LogQL answers are not there: set {VARIABLE} to their folder"
        missing(message)


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    suite = find_suite()
    assert suite is not None
    with served_lake(suite.requests, LOGS) as url, closing(Asker(url)) as asker:
        yield asker


@pytest.mark.slow
@pytest.mark.parametrize("case", _slice(), ids=lambda case: case.case_id)
def test_case(asker: Asker, case: Case) -> None:
    reason = difference(asker, case)
    assert reason is None, f"{case.shown()}\n  {reason}"
