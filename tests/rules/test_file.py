"""A rule file is read with positions: what is wrong is said at its line and column."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.compute import Compute
from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.definitions import Alert, Materialize, Record
from lakerunner.rules.file import read_rules

WHOLE = """\
groups:
  - name: checkout
    interval: 30s
    limit: 5
    query_offset: 1m
    labels: {team: shop}
    rules:
      - materialize: checkout_errors_total
        signal: logs
        match: '{service_name="checkout"} |= "error" | json | status >= 500'
        dimensions: [service_name, region]
        compute: sum(bytes_sent)
        max_series: 100
        labels: {source: rules}
      - record: job:rate5m
        expr: sum by (job) (rate(x[5m]))
        labels: {a: b}
      - alert: TooMany
        expr: |
          job:rate5m
            > 5
        for: 1m30s
        keep_firing_for: 5m
        language: logql
        labels: {severity: 1}
        annotations:
          summary: "{{ $labels.job }}"
"""


def test_all_kinds_of_rules_are_read() -> None:
    (group,) = read_rules(WHOLE)
    assert (group.name, group.interval_s, group.limit, group.query_offset_s) == ("checkout", 30.0, 5, 60.0)
    assert group.labels == {"team": "shop"} and group.source_position == (2, 5)
    assert group.rules == (
        Materialize(
            "checkout_errors_total",
            "logs",
            '{service_name="checkout"} |= "error" | json | status >= 500',
            ("service_name", "region"),
            Compute.SUM,
            "bytes_sent",
            100,
            {"source": "rules"},
        ),
        Record("job:rate5m", "sum by (job) (rate(x[5m]))", {"a": "b"}),
        Alert(
            "TooMany", "job:rate5m\n  > 5\n", 90.0, 300.0, {"severity": "1"}, {"summary": "{{ $labels.job }}"}, "logql"
        ),
    )


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("groups: [{name: a}, {name: a}]", (1, 21), "twice"),
        ("groups: [{rules: []}]", (1, 10), "no name"),
        ("groups:\n  - name: a\n    rule: []", (3, 5), "no field 'rule'"),
        ("groups: {}", (1, 9), "no list"),
        ("a: b\n b: c", (2, 3), "not YAML"),
        ("groups: [{name: a, name: b}]", (1, 20), "twice"),
        ("groups: [{name: a, interval: 5}]", (1, 30), "no duration"),
        ("groups: [{name: a, rules: [{expr: up}]}]", (1, 28), "has none"),
        ("groups: [{name: a, rules: [{alert: x, record: y, expr: up}]}]", (1, 28), "record and alert"),
        ("groups: [{name: a, rules: [{record: a-b, expr: up}]}]", (1, 37), "no name of a metric"),
        ("groups: [{name: a, rules: [{record: a, for: 1m, expr: up}]}]", (1, 40), "no field 'for'"),
        ("groups: [{name: a, rules: [{materialize: a, signal: lgos, match: x}]}]", (1, 53), "signal is 'lgos'"),
        ("groups: [{name: a, rules: [{materialize: a, match: x}]}]", (1, 28), "`signal` is missing"),
        (
            "groups: [{name: a, rules: [{materialize: a, signal: logs, match: x, compute: avg(f)}]}]",
            (1, 78),
            "cannot compute",
        ),
        ("groups: [{name: a, rules: [{materialize: a, signal: logs, match: x, compute: sum}]}]", (1, 78), "needs a"),
        ("groups: [{name: a, rules: [{alert: a, expr: x, labels: {__name__: y}}]}]", (1, 57), "no name of a label"),
        ("a: &a [1]\ngroups: *b", (2, 9), "alias"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(text: str, position: tuple[int, int], reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_rules(text)
    assert ((caught.value.line, caught.value.column), reason in caught.value.reason) == (position, True), caught.value


def test_a_small_file_cannot_stand_for_billions_of_values() -> None:
    layers = [f"  x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 10)]
    text = "\n".join(["groups:", "- name: a", "  rules: &x0 [{alert: a, expr: up}]", *layers])
    with pytest.raises(ParseError):
        read_rules(text)
    with pytest.raises(ParseError):
        read_rules("[" * 5000)


@given(st.text("ab'\"\\ x", min_size=1, max_size=12).map(lambda text: "a" + text + "z"), st.sampled_from("'\"|"))
def test_an_error_inside_a_query_points_into_the_file(value: str, style: str) -> None:
    if style == "|":
        written = "|\n          " + value
    elif style == "'":
        written = "'" + value.replace("'", "''") + "'"
    else:
        written = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    text = f"groups:\n  - name: a\n    rules:\n      - alert: b\n        expr: {written}\n"
    rule = read_rules(text)[0].rules[0]
    assert isinstance(rule, Alert) and rule.source is not None and rule.expr.rstrip("\n") == value
    places = []
    for at, letter in enumerate(value):
        error = rule.source.error("expr", "wrong", at, at + 1)
        places.append(error.start)
        if letter not in "'\"\\":
            assert text[error.start] == letter
    assert all(before < after for before, after in pairwise(places))
