"""The runner finds what is wrong: a script that lies must fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lakerunner.query.series.batch import SeriesBatch
from lakerunner.query.series.matchers import Matcher
from lakerunner.query.series.reading import RAW, Reading
from tests.query.promqltest.__main__ import main
from tests.query.promqltest.runner import run_script
from tests.query.promqltest.series import parse_series, parse_starts

LOAD = """
load 1m
    m{a="x"} 1 2 3
    m{a="y"} 4 5 6
    h {{schema:0 count:3 sum:4 buckets:[1 2]}}x3

"""


def _failures(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "case.test"
    path.write_text(LOAD + text)
    return [outcome.failure for outcome in run_script(path) if outcome.failure is not None]


@pytest.mark.parametrize(
    "text",
    [
        'eval instant at 1m m\n    m{a="x"} 2\n    m{a="y"} 5',
        "eval range from 0 to 2m step 1m sum(m)\n    {} 5 7 9",
        "eval instant at 1m 1 + 1\n    2",
        'eval instant at 1m "x"\n    expect string `x`',
        "eval instant at 1m histogram_count(h)\n    {} 3",
        "eval instant at 1m h\n    h {{schema:0 count:3 sum:4 buckets:[1 2]}}",
        "eval instant at 1m m + on () m\n    expect fail regex: found duplicate series",
        'eval instant at 2m m{a="x"}[2m]\n    expect range vector from 1m to 2m step 1m\n    m{a="x"} 2 3',
        'eval instant at 1m sort_desc(m)\n    expect ordered\n    m{a="y"} 5\n    m{a="x"} 2',
    ],
)
def test_what_is_right_passes(tmp_path: Path, text: str) -> None:
    assert _failures(tmp_path, text) == []


@pytest.mark.parametrize(
    "text",
    [
        'eval instant at 1m m\n    m{a="x"} 2\n    m{a="y"} 5.1',
        'eval instant at 1m m\n    m{a="x"} 2',
        'eval instant at 1m m{a="x"}\n    m{a="x"} 2\n    m{a="z"} 2',
        "eval range from 0 to 2m step 1m sum(m)\n    {} 5 7 _",
        "eval range from 0 to 2m step 1m sum(m)\n    {} 5 7 10",
        "eval instant at 1m 1 + 1\n    3",
        "eval instant at 1m m\n    expect fail",
        "eval instant at 1m m + on () m\n    {} 1",
        "eval instant at 1m m + on () m\n    expect fail msg: something else",
        "eval instant at 1m sum(m)\n    expect warn\n    {} 7",
        "eval instant at 1m max({__name__=~'m|h'})\n    expect no_info\n    {} 5",
        "eval instant at 1m h\n    h {{schema:0 count:3 sum:4 buckets:[2 1]}}",
        "eval instant at 1m h\n    h {{schema:0 count:3 sum:4 buckets:[1 2] counter_reset_hint:reset}}",
        'eval instant at 1m sort(m)\n    expect ordered\n    m{a="y"} 5\n    m{a="x"} 2',
        'eval instant at 1m "x"\n    expect string "y"',
    ],
)
def test_what_is_wrong_fails(tmp_path: Path, text: str) -> None:
    assert len(_failures(tmp_path, text)) == 1


def test_the_source_can_be_another(tmp_path: Path) -> None:
    class Empty:
        def select(
            self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, reading: Reading = RAW
        ) -> SeriesBatch:
            return SeriesBatch.empty()

    path = tmp_path / "case.test"
    path.write_text(LOAD + "eval instant at 1m sum(m)\n    {} 7\n")
    (outcome,) = run_script(path, lambda loaded: Empty())
    assert outcome.failure is not None and "not found" in outcome.failure
    (outcome,) = run_script(path)
    assert outcome.failure is None


def test_the_command_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.test").write_text(LOAD + "eval instant at 1m sum(m)\n    {} 7\n")
    (tmp_path / "b.test").write_text(LOAD + "eval instant at 1m sum(m)\n    {} 8\n")
    assert main([str(tmp_path), "--memory"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a.test: 1/1" and lines[1] == "b.test: 0/1"
    assert f"{tmp_path / 'b.test'}:7: sum(m)" in lines[2]
    assert lines[-1] == "1 passed, 1 failed"
    with pytest.raises(SystemExit):
        main([])


def test_notations() -> None:
    _, points = parse_series("m 1 _ 2x2 _x2 5-1x2 stale NaN")
    values = [point.value for point in points]
    assert values[:10] == [1.0, None, 2.0, 2.0, 2.0, None, None, 5.0, 4.0, 3.0]
    assert len(values) == 12
    assert parse_starts("_ -1m 30s+1sx2 _x2") == [None, -60_000, 30_000, 31_000, 32_000, None, None]


def test_what_cannot_be_read_fails_alone(tmp_path: Path) -> None:
    failures = _failures(tmp_path, "eval sometimes at 1m m\n    {} 1\n\neval instant at 1m sum(m)\n    {} 7\n")
    assert len(failures) == 1 and "cannot read the block" in failures[0]
    assert len(_failures(tmp_path, "load 1m\n    m one two\n\neval instant at 1m sum(m)\n    {} 7\n")) == 1
    assert len(_failures(tmp_path, 'load 1m\n    m{a="x"} 9\n\neval instant at 1m sum(m)\n    {} 7\n')) == 1


def test_numbers_are_those_of_prometheus() -> None:
    _, points = parse_series("m 1_000 010 iNf +Inf -NAN .5 5. 1e2+1e1x1 010+010x1")
    assert [str(point.value) for point in points] == [
        *("1000.0", "8.0", "inf", "inf", "nan", "0.5", "5.0", "100.0", "110.0", "8.0", "16.0")
    ]


@pytest.mark.parametrize(
    "values",
    [
        *("1 + 2x3", "1+-1x2", "1,2", "1m", "0x1f", "_stale", "+_", "1#c"),
        *("{{bogus:1}}", "{{count:1 count:2}}", "{{counter_reset_hint:bogus}}", "{{nan}}", "{{schema:1,count:2}}"),
        *("{{schema:1}}{{schema:2}}", "{{count:1 many}}"),
    ],
)
def test_values_that_are_none_fail(tmp_path: Path, values: str) -> None:
    (failure,) = _failures(tmp_path, f"load 1m\n    other {values}\n")
    assert "cannot read the block" in failure


@pytest.mark.parametrize("line", ["cleared", "reload 1m", "expect warn", "evaluate at 1m m", "ignore", "resume"])
def test_no_directive_is_passed_over(tmp_path: Path, line: str) -> None:
    (failure,) = _failures(tmp_path, f"{line}\n")
    assert "cannot read the block" in failure
    assert len(_failures(tmp_path, f"eval instant at 1m sum(m)\n    expect {line}\n    {{}} 7\n")) == 1
