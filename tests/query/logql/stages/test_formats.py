"""`line_format` and `label_format`: which labels templates see, what renaming leaves behind, and errors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.stages.compile import compile_stages

_ENTRIES = Entries(
    np.array([1, 2], np.int64),
    pa.array(["first", "second"]),
    {
        (Category.STREAM, "app"): pa.array(["shop", "shop"]).dictionary_encode(),
        (Category.METADATA, "level"): pa.array(["info", None]),
        (Category.PARSED, "msg"): pa.array(["hi there", ""]),
    },
)
_SUBSTR_ERROR = (
    'template: {0}:1:3: executing "{0}" at <substr 3 1 .app>: error calling substr: '
    "runtime error: slice bounds out of range [3:1]"
)


def _run(stages: str, entries: Entries = _ENTRIES) -> Entries:
    expr = parse('{app="shop"} ' + stages)
    assert isinstance(expr, ast.LogSelector)
    return compile_stages(expr.stages)(entries, lambda: None)


def _labels(entries: Entries, row: int) -> dict[str, str]:
    """The labels of an entry, with `s.`, `m.` or `p.` before those of the stream, metadata, and the query."""
    found = {f"{'smp'[category]}.{name}": values[row].as_py() for (category, name), values in entries.columns.items()}
    return {name: value for name, value in sorted(found.items()) if value is not None}


@pytest.mark.parametrize(
    ("template", "lines"),
    [
        ("`{{.msg}}`", ["hi there", ""]),
        ("`{{.nope}}`", ["", ""]),
        ("`{{.level}}: {{.msg}}`", ["info: hi there", ": "]),
        ("`{{ __line__ }}!`", ["first!", "second!"]),
        ("`constant`", ["constant", "constant"]),
        ("``", ["", ""]),
        ("`{{ if .level }}{{ .level }}{{ else }}none of {{ .app }}{{ end }}`", ["info", "none of shop"]),
        ('`{{ trunc 1 "é" }}{{ .app }}`', ["\ufffdshop", "\ufffdshop"]),
        ('`{{ trunc 4 "日本" }}{{ slice "本" 1 3 }}`', ["日本", "日本"]),
    ],
)
def test_lines(template: str, lines: list[str]) -> None:
    assert _run(f"| line_format {template}").lines.to_pylist() == lines


def test_a_line_whose_template_fails_stays() -> None:
    made = _run("| line_format `{{ if .level }}{{ substr 3 1 .app }}{{ end }}{{.app}}`")
    assert made.lines.to_pylist() == ["first", "shop"]
    assert _labels(made, 0)["p.__error__"] == "TemplateFormatErr"
    assert "p.__error__" not in _labels(made, 1)


def test_the_last_error_counts() -> None:
    failed = _ENTRIES.with_error(np.array([True, False]), "JSONParserErr", "broken")
    made = _labels(_run("| line_format `{{ substr 3 1 .app }}`", failed), 0)
    assert (made["p.__error__"], made["p.__error_details__"]) == (
        "TemplateFormatErr",
        _SUBSTR_ERROR.format("line"),
    )


def test_only_templates_of_more_than_a_label_see_errors() -> None:
    failed = _ENTRIES.with_error(np.array([True, False]), "JSONParserErr", "broken")
    assert _run("| line_format `{{.__error__}}`", failed).lines.to_pylist() == ["", ""]
    assert _run("| line_format `{{.__error__}}.`", failed).lines.to_pylist() == ["JSONParserErr.", "."]
    assert "p.e" not in _labels(_run("| label_format e=__error__", failed), 0)


@pytest.mark.parametrize(
    ("assignments", "first", "second"),
    [
        # A template sets a label of the query, whatever the label was.
        (
            'level="x"',
            {"s.app": "shop", "p.level": "x", "p.msg": "hi there"},
            {"s.app": "shop", "p.level": "x", "p.msg": ""},
        ),
        (
            'app="{{.app}}2"',
            {"p.app": "shop2", "m.level": "info", "p.msg": "hi there"},
            {"p.app": "shop2", "p.msg": ""},
        ),
        # An empty text is a label with an empty value.
        (
            'x="{{.nope}}"',
            {"s.app": "shop", "m.level": "info", "p.msg": "hi there", "p.x": ""},
            {"s.app": "shop", "p.msg": "", "p.x": ""},
        ),
        # Renaming needs the label.
        ("lvl=level", {"s.app": "shop", "p.lvl": "info", "p.msg": "hi there"}, {"s.app": "shop", "p.msg": ""}),
        ("msg=level", {"s.app": "shop", "p.msg": "info"}, {"s.app": "shop", "p.msg": ""}),
        ("level=nope", {"s.app": "shop", "m.level": "info", "p.msg": "hi there"}, {"s.app": "shop", "p.msg": ""}),
        ("level=level", {"s.app": "shop", "m.level": "info", "p.msg": "hi there"}, {"s.app": "shop", "p.msg": ""}),
        # One after another: the second finds what the first left.
        ("level=msg, msg=level", {"s.app": "shop", "p.msg": "hi there"}, {"s.app": "shop", "p.msg": ""}),
        # All templates see the labels as the first of them does.
        (
            'a="{{.level}}", b="{{.a}}-{{.level}}", c=a',
            {"s.app": "shop", "m.level": "info", "p.b": "-info", "p.c": "info", "p.msg": "hi there"},
            {"s.app": "shop", "p.b": "-", "p.c": "", "p.msg": ""},
        ),
        (
            'x=level, y="{{.level}}{{.x}}"',
            {"s.app": "shop", "p.msg": "hi there", "p.x": "info", "p.y": "info"},
            {"s.app": "shop", "p.msg": "", "p.y": ""},
        ),
    ],
)
def test_labels(assignments: str, first: dict[str, str], second: dict[str, str]) -> None:
    made = _run(f"| label_format {assignments}")
    assert [_labels(made, 0), _labels(made, 1)] == [first, second]
    assert made.lines is _ENTRIES.lines


def test_a_label_whose_template_fails_is_not_set() -> None:
    made = _labels(_run('| label_format level="{{ substr 3 1 .app }}"'), 0)
    assert made["m.level"] == "info"
    assert made["p.__error_details__"] == _SUBSTR_ERROR.format("label")


def test_half_a_character_of_a_label_is_replaced_as_one() -> None:
    made = _run('| label_format x=`{{ trunc 2 "日" }}`')
    assert _labels(made, 0)["p.x"] == "\ufffd"
    assert _run('| line_format `{{ trunc 2 "日" }}`').lines[0].as_py() == "\ufffd\ufffd"
    # Bytes that cannot stand together are replaced one by one.
    assert _labels(_run('| label_format x=`{{ b64dec "nuk=" }}`'), 0)["p.x"] == "\ufffd" * 2
    assert _labels(_run('| label_format x=`{{ substr 1 3 "日" }}`'), 0)["p.x"] == "\ufffd" * 2


def test_line_filters_see_colours_unless_a_label_filter_is_between_them_and_decolorize() -> None:
    entries = Entries(np.array([1], np.int64), pa.array(["\x1b[31mERROR\x1b[0m disk"]), {})
    assert len(_run('| decolorize |= "ERROR disk"', entries)) == 0
    assert len(_run('| decolorize | logfmt |= "ERROR disk"', entries)) == 0
    assert _run('| decolorize | __error__="" |= "ERROR disk"', entries).lines.to_pylist() == ["ERROR disk"]
    assert len(_run('| __error__="" | decolorize |= "ERROR disk"', entries)) == 0
