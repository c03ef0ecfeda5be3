"""Errors in templates, and where they point."""

from __future__ import annotations

import pytest

from lakerunner.query.logql.stages.template import parse
from lakerunner.query.logql.stages.template.reads import Reads, reads
from lakerunner.query.syntax.errors import ParseError


@pytest.mark.parametrize(
    ("template", "reason", "token"),
    [
        ("a {{ .b", "unclosed action", "{{ .b"),
        ("{{ nope .a }}", 'function "nope" not defined', "nope"),
        ("{{ $x }}", 'undefined variable "$x"', "$x"),
        ("{{ if .a }}x", "has no {{end}}", ""),
        ("x{{ end }}", "unexpected {{end}}", "}}"),
        ("{{ .a | 5 }}", "non executable command in pipeline stage 2", "5 "),
        ('{{ "abc }}', "unterminated quoted string", '"abc }}'),
        ("{{ (.a }}", "unclosed left paren", "}}"),
        ("{{ .a ) }}", "unexpected right paren", ")"),
        ("{{ 1x }}", "bad number syntax", "1x"),
        ("{{ .a%b }}", "bad character '%'", "%"),
        ("{{/* x }}", "unclosed comment", "{{/* x }}"),
        ("{{ break }}", "{{break}} outside {{range}}", "break"),
        ("{{ if }}x{{ end }}", "missing value for if", "}}"),
        ("{{ $a, $b := . }}", "too many declarations in command", "$a,"),
    ],
)
def test_an_error_points_at_its_token(template: str, reason: str, token: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(template)
    assert reason in caught.value.reason
    assert template[caught.value.start : caught.value.end] == token


@pytest.mark.parametrize(
    ("template", "labels"),
    [
        ("{{.a}} {{ .b | upper }}", {"a", "b"}),
        ("{{ with .a }}{{ . }}{{ $.c }}{{ end }}", {"a", "c"}),
        ("{{ if eq .a (print .b) }}{{ (fromJson .c).d }}{{ end }}", {"a", "b", "c"}),
        ("{{ range $k, $v := . }}{{ $k }}{{ end }}", None),
        ("{{ printf `%v` $ }}", None),
        ('{{ define "x" }}{{ .e }}{{ end }}{{ template "x" .a }}', {"a", "e"}),
        ("no labels", set()),
    ],
)
def test_what_a_template_reads(template: str, labels: set[str] | None) -> None:
    assert reads(parse(template)) == Reads(None if labels is None else frozenset(labels), line=False, time=False)


def test_reads_of_lines_and_times() -> None:
    assert reads(parse("{{ __line__ }}{{ __timestamp__.Year }}")) == Reads(frozenset(), line=True, time=True)
