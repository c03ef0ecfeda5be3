"""Templates and what they give, as Go's engine with Loki's functions gives it. The pairs are in `pairs/*.txt`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.query.logql.stages.template import parse
from lakerunner.query.logql.stages.template.evaluate import evaluate
from lakerunner.query.logql.stages.template.interpreter import Entry
from lakerunner.query.syntax.errors import ParseError
from tests.query.logql.stages.template.entries import OTHERS, Outcome, entries_of, interpreted, outcomes
from tests.query.logql.stages.template.entries import THE_ENTRY as ENTRY

_FILES = sorted((Path(__file__).parent / "pairs").glob("*.txt"))


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Templates and the lines below them."""
    for block in path.read_text().split("\n\n"):
        lines = block.strip("\n").split("\n")
        if not lines[0].startswith("#"):
            yield lines[0], lines[1]


def _expected(line: str) -> Outcome:
    text = line[2:]
    text = json.loads(text) if text.startswith('"') else text
    return (text, None) if line[0] == "=" else (None, text)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_template_gives_what_go_gives(path: Path) -> None:
    """For one entry, and the same among other entries, as a column."""
    wrong = []
    for template, line in _pairs(path):
        if line == "?":
            with pytest.raises(ParseError):
                parse(template)
            continue
        alone = interpreted(template, ENTRY)
        column = outcomes(evaluate(parse(template), "line", entries_of([ENTRY, *OTHERS]), lambda: None))[0]
        if not alone == column == _expected(line):
            wrong.append(f"{template}\n  {line}\n  alone:  {alone}\n  column: {column}")
    assert not wrong, "\n".join(wrong)


def test_errors_count_lines_and_bytes() -> None:
    assert interpreted("é\nü {{ substr 5 2 .a }}", Entry(ENTRY.labels)) == (
        None,
        (
            'template: line:2:6: executing "line" at <substr 5 2 .a>: error calling substr: '
            "runtime error: slice bounds out of range [5:2]"
        ),
    )
