"""Every error of recording and alerting rules is found at once, each at its place."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import LakeError
from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.evaluated import GroupLimits, check_groups, group_errors
from lakerunner.rules.file import read_rules

FILE = """
groups:
  - name: a
    rules:
      - record: one
        expr: sum(rate(x[5m])
      - alert: Two
        expr: up ==
        annotations: {summary: '{{ if }}', other: '{{ nothing }}'}
      - record: three
        expr: four + 1
      - record: four
        expr: three
  - name: b
    interval: 10ms
    rules:
      - record: five
        expr: up
      - record: five
        expr: up
"""


def test_all_errors_are_found_at_their_places() -> None:
    found = list(group_errors(read_rules(FILE), GroupLimits()))
    places = [(error.line, error.column) for error in found if isinstance(error, ParseError)]
    # The two queries, the two templates, the rule that is there twice, and the cycle.
    assert [line for line, _ in places] == [6, 8, 9, 9, 20, 10]
    assert len(found) == 7 and sum("shorter than" in str(error) for error in found) == 1
    assert "three reads four reads three" in str(found[-1])


def test_applying_refuses_with_the_first() -> None:
    groups = read_rules(FILE)
    with pytest.raises(LakeError) as caught:
        check_groups(groups, GroupLimits())
    assert str(caught.value) == str(next(group_errors(groups, GroupLimits())))
