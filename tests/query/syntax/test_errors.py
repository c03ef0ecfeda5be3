"""A parse error points at its token."""

from __future__ import annotations

import pickle

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.query.syntax.errors import ParseError, position_of


def test_it_is_bad_input_with_a_position() -> None:
    error = ParseError("unexpected thing", text="sum(\n  foo ! bar)", start=11, end=12, language="PromQL")
    assert isinstance(error, BadInput)
    assert (error.line, error.column) == (2, 7)
    assert str(error) == "2:7: cannot parse PromQL: unexpected thing"


def test_it_underlines_the_token() -> None:
    error = ParseError("no", text="a + bcd + e", start=4, end=7)
    assert error.rendered().splitlines()[1:] == ["  a + bcd + e", "      ^^^"]


def test_a_long_line_is_cut_around_the_token() -> None:
    text = "x" * 500 + "!" + "y" * 500
    lines = ParseError("no", text=text, start=500, end=501).rendered().splitlines()
    assert len(lines[1]) < 120
    assert lines[1][lines[2].index("^")] == "!"


def test_it_crosses_process_borders() -> None:
    error = pickle.loads(pickle.dumps(ParseError("no", text="abc", start=1, end=2, hint="do it right")))
    assert (error.reason, error.text, error.start, error.end, error.hint) == ("no", "abc", 1, 2, "do it right")


@pytest.mark.parametrize(("offset", "expected"), [(0, (1, 1)), (3, (1, 4)), (4, (2, 1)), (6, (2, 3))])
def test_positions_count_from_one(offset: int, expected: tuple[int, int]) -> None:
    assert position_of("abc\ndef", offset) == expected
