"""Tests of materialization rules as pairs of rows and series: they pass, or fail with what differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakerunner.model.errors import BadInput
from lakerunner.pipeline.derive.pair_tests import run_pairs
from lakerunner.rules.unit_tests.pairs import is_pairs, parse_pairs

HERE = Path(__file__).parent


def test_the_example_of_this_folder_passes() -> None:
    assert run_pairs(HERE / "shop.pairs") == ([], 4)
    assert run_pairs(HERE / "shop.pairs", re.compile("spans")) == ([], 1)


def test_a_failure_shows_what_differs(tmp_path: Path) -> None:
    (tmp_path / "shop.rules.yaml").write_text((HERE / "shop.rules.yaml").read_text())
    file = tmp_path / "a.pairs"
    file.write_text((HERE / "shop.pairs").read_text().replace('region="eu"} 2 1', 'region="eu"} 3 1'))
    (failure,), ran = run_pairs(file)
    assert ran == 4
    assert failure.splitlines() == [
        "  test lines are counted in buckets that are closed at the right (line 4):",
        "    --- expected",
        "    +++ found",
        '    - errors_total{region="eu", service_name="shop"} 3 1',
        '    + errors_total{region="eu", service_name="shop"} 2 1',
        '      errors_total{service_name="shop"} _ _ _ 1',
        "      ms {{count:2 sum:8}} {{count:1 sum:7}} _ {{count:2 sum:8}}",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rules a\ntest x\nlogs\n  soon {}\nseries\n", "line 4: 'soon' is no time"),
        ("rules a\ntest x\nlogs\n  1s {\nseries\n", "line 4: the row is no JSON object"),
        ("rules a\ntest x\nlogs\n  1s {}\n", "line 2: the test 'x' has no `series`"),
        ("rules a\ntest x\nlgos\n", "line 3: 'lgos' is no heading"),
        ("rules a\n  1s {}\n", "line 2: a row or series outside of a section"),
        ("rules a\ntest x\nseries\n  m{ 1\n", "line 4: "),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, reason: str) -> None:
    assert is_pairs(text)
    with pytest.raises(BadInput, match=re.escape(reason)):
        parse_pairs(text)


def test_other_files_are_no_pairs() -> None:
    assert not is_pairs("rule_files: [a]\ntests: []\n") and not is_pairs("") and is_pairs("# a\n\nrules b.yaml\n")
