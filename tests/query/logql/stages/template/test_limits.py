"""Templates cannot take more memory or time than their limits say."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import LimitHit
from lakerunner.query.logql.stages.template import parse
from lakerunner.query.logql.stages.template.evaluate import evaluate
from lakerunner.query.logql.stages.template.limits import MAX_BATCH_BYTES, MAX_ENTRY_BYTES, MAX_STEPS
from lakerunner.query.syntax.errors import ParseError
from tests.query.logql.stages.template.entries import OTHERS, THE_ENTRY, entries_of

_ENTRIES = entries_of([THE_ENTRY, *OTHERS])


@pytest.mark.parametrize(
    "template",
    [
        '{{ repeat 1000000000 "x" }}',
        '{{ repeat 9223372036854775807 "xy" }}',
        '{{ repeat 100000 "x" | repeat 100000 }}',
        '{{ $x := repeat 4000 "x" }}{{ $y := replace "x" $x $x }}{{ replace "x" $y $y }}',
        '{{ indent 2000000000 "a" }}',
        "{{ alignLeft 2000000000 .a }}",
        '{{ regexReplaceAll "x" (repeat 10000 "x") (repeat 10000 "y") }}',
        '{{ range 20 }}{{ repeat 1000000 "x" }}{{ end }}',
    ],
)
def test_a_bomb_names_the_limit(template: str) -> None:
    with pytest.raises(LimitHit, match=f"{MAX_ENTRY_BYTES:,} bytes|{MAX_BATCH_BYTES:,} bytes"):
        evaluate(parse(template), "line", _ENTRIES, lambda: None)


def test_the_text_of_a_batch_is_limited() -> None:
    template = parse('{{ repeat 10000000 "x" }}')
    many = entries_of([THE_ENTRY] * 100)
    with pytest.raises(LimitHit, match=f"{MAX_BATCH_BYTES:,} bytes"):
        evaluate(template, "line", many, lambda: None)


@pytest.mark.parametrize(
    ("template", "limit"),
    [
        ("{{ range 9223372036854775807 }}{{ end }}", f"{MAX_STEPS:,} nodes"),
        ("{{ range 400 }}{{ range 400 }}x{{ end }}{{ end }}", f"{MAX_STEPS:,} nodes"),
        ('{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}', "50 deep"),
        ('{{ define "x" }}{{ template "x" }}{{ template "x" }}{{ end }}{{ template "x" }}', "50 deep"),
    ],
)
def test_loops_and_recursion_end(template: str, limit: str) -> None:
    with pytest.raises(LimitHit, match=limit):
        evaluate(parse(template), "line", _ENTRIES, lambda: None)


def test_a_costly_regular_expression_is_refused() -> None:
    template = parse('{{ regexReplaceAll "(a?){900}(b?){900}" (repeat 1000000 "x") "y" }}')
    with pytest.raises(LimitHit, match="steps"):
        evaluate(template, "line", _ENTRIES, lambda: None)


def test_an_evaluation_can_be_stopped() -> None:
    class Stop(Exception):
        pass

    def check() -> None:
        raise Stop

    with pytest.raises(Stop):
        evaluate(parse("{{ .a }}"), "line", _ENTRIES, check)


def test_a_long_loop_calls_the_check() -> None:
    calls: list[None] = []
    evaluate(parse("{{ range 90000 }}{{ end }}"), "line", _ENTRIES, lambda: calls.append(None))
    assert len(calls) > 10


@pytest.mark.parametrize(
    "template",
    [
        "{{ " + "(" * 5000 + ".a" + ")" * 5000 + " }}",
        "{{ if .a }}" * 5000,
        "{{ range . }}" * 5000,
        "{{ if .a }}" + "{{ else if .b }}" * 5000 + "{{ end }}",
    ],
    ids=["parentheses", "if", "range", "else if"],
)
def test_deep_nesting_is_refused(template: str) -> None:
    with pytest.raises(ParseError, match="nests deeper"):
        parse(template)
