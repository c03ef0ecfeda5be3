"""Which queries are read and which are refused: the lines of syntax.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.query.syntax.errors import ParseError
from lakerunner.query.traceql.check import check
from lakerunner.query.traceql.parser import parse

_LINES = [line for line in Path(__file__).with_name("syntax.txt").read_text("utf-8").splitlines() if line[0] != "#"]


def _read(text: str) -> None:
    check(text, parse(text))


@pytest.mark.parametrize("text", [line[2:] for line in _LINES if line[0] == "+"])
def test_read(text: str) -> None:
    _read(text)


@pytest.mark.parametrize("text", [line[2:] for line in _LINES if line[0] == "-"])
def test_refused(text: str) -> None:
    with pytest.raises(ParseError):
        _read(text)
