"""Templates of alerts: Prometheus' functions, errors as text, and limits."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.model.labels import LabelSet
from lakerunner.query.syntax.errors import ParseError
from lakerunner.rules.evaluation.template import MAX_TEXT, Scope, check_template, expand
from lakerunner.rules.evaluation.vector import Sample

_SAMPLE = Sample(LabelSet.of({"instance": "web-1.example.org:9100", "job": "node"}), 1_234_567.0)


def _ask(text: str, _: int) -> list[Sample]:
    if text == "broken":
        raise BadInput("cannot do that")
    return [Sample(LabelSet.of({"a": name}), value) for name, value in (("b", 2.0), ("a", 1.5)) if text != "none"]


def _expand(text: str) -> str:
    return expand("Down", text, _SAMPLE, Scope(90_500, _ask, {"region": "eu"}, "http://lake:1/prom"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ $labels.instance }} is {{ $value }}", "web-1.example.org:9100 is 1.234567e+06"),
        ("{{ .Labels.none }}|{{ $externalLabels.region }}|{{ externalURL }}|{{ pathPrefix }}",
         "|eu|http://lake:1/prom|/prom"),
        ("{{ humanize $value }} {{ humanize 0.0123 }} {{ humanize1024 2048.0 }}", "1.235M 12.3m 2ki"),
        ("{{ humanizeDuration 93784.5 }} {{ humanizeDuration 0.05 }}", "1d 2h 3m 4s 50ms"),
        ("{{ humanizePercentage 0.1234 }} {{ humanizeTimestamp 1.5 }}", "12.34% 1970-01-01 00:00:01.5 +0000 UTC"),
        ("{{ range query `up` | sortByLabel `a` }}{{ .Labels.a }}={{ .Value }} {{ end }}", "a=1.5 b=2 "),
        ("{{ query `up` | first | value | printf `%.1f` }} {{ query `up` | first | label `a` }}", "2.0 b"),
        ("{{ title `it's up` }} {{ toUpper `a` }} {{ toLower `B` }}", "It's Up A b"),
        ("{{ reReplaceAll `(web)-(\\d)` `$2-$1` $labels.instance }}", "1-web.example.org:9100"),
        ("{{ match `^web` $labels.instance }} {{ stripPort $labels.instance }} {{ stripDomain $labels.instance }}",
         "true web-1.example.org web-1:9100"),
        ("{{ now }} {{ parseDuration `1h` }} {{ (toTime 1.5).Year }} {{ toDuration 1.5 }}", "90.5 3600 1970 1.5s"),
        ("{{ graphLink `up == 0` }}", "/graph?g0.expr=up+%3D%3D+0&g0.tab=0"),
        ("{{ with args 1 2 }}{{ .arg1 }}{{ end }}", "2"),
        ("{{ define `x` }}<{{ . }}>{{ end }}{{ template `x` `y` }}", "<y>"),
    ],
)  # fmt: skip
def test_functions(text: str, expected: str) -> None:
    assert _expand(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ .Foo }}", "can't evaluate field Foo in type struct"),
        ("{{ nope }}", 'template: __alert_Down:1: function "nope" not defined'),
        ("{{ query `none` | first }}", "error calling first: first() called on vector with no elements"),
        ("{{ query `broken` }}", "error calling query: cannot do that"),
        ("{{ define `x` }}{{ template `x` }}{{ end }}{{ template `x` }}", "more than 50 deep"),
        ("{{ range 1000000000 }}a{{ end }}", "executes more than 100,000 nodes"),
        ("{{ range 20 }}{{ query `up` }}{{ end }}", "asks more than 10 queries"),
        ("a" * (MAX_TEXT + 1), "longer than"),
    ],
)
def test_what_fails_is_said_in_the_text(text: str, reason: str) -> None:
    made = _expand(text)
    assert made.startswith("<error expanding template: error ") and reason in made and len(made) < 1_000


def test_a_text_that_is_no_template_is_refused_at_its_place() -> None:
    with pytest.raises(ParseError) as caught:
        check_template("so {{ $value | nope }}")
    assert caught.value.text[caught.value.start : caught.value.end] == "nope"
