"""What a real Loki accepted is accepted, and what it refused before reading a line is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.pretty import pretty
from lakerunner.query.logql.printer import print_expr
from lakerunner.query.syntax.errors import ParseError
from tests.components.missing import missing
from tests.query.logqltest.suite import VARIABLE, Case, Suite, cases_of

_HERE = Path(__file__).parent
#: How messages begin that are not about the text of the query.
_WHILE_RUNNING = (
    "pipeline error",
    "multiple matches for labels",
    "found duplicate series",
    "log queries are not supported as an instant query",
    "end timestamp must not be before",
    "limit must be a positive value",
    "max entries limit",
    "strconv.Atoi",
    "invalid direction",
)


def _suite() -> Suite | None:
    """The recorded answers are beside the repository, not in it."""
    named = os.environ.get(VARIABLE)
    folders = [Path(named)] if named else [parent / "shared" / "logqltest" for parent in _HERE.parents]
    return next((Suite(folder) for folder in folders if folder.is_dir()), None)


def _topics() -> list[Path]:
    suite = _suite()
    return suite.topics() if suite is not None else []


def test_the_suite_is_there() -> None:
    if not _topics():
        message = f"recorded answers of Loki are not there: set {VARIABLE} to their folder"
        missing(message)


@pytest.mark.parametrize("path", _topics(), ids=lambda path: path.stem)
def test_queries_are_accepted_and_refused_as_by_loki(path: Path) -> None:
    wrong = [
        f"{case.case_id}: {case.shown()}: {refusal or 'accepted'}"
        for case in cases_of(path)
        if case.is_query and not case.is_quirk
        if ((refusal := _refusal(case.shown())) is None) != _is_valid(case)
    ]
    assert not wrong, "\n".join(wrong)


def test_queries_are_formatted_as_by_loki() -> None:
    suite = _suite()
    if suite is None:
        pytest.skip("see test_the_suite_is_there")
    cases = [case for case in cases_of(suite.folder / "api.jsonl") if case.path.endswith("/format_query")]
    assert cases
    for case in cases:
        if case.recorded["status"] == 200 and not case.is_quirk:
            assert pretty(parse(case.params["query"])) == case.recorded["answer"]["data"]
        elif case.recorded["status"] == 400:
            assert _refusal(case.params["query"]) is not None


@pytest.mark.parametrize("path", _topics(), ids=lambda path: path.stem)
def test_recorded_queries_print_and_parse_to_themselves(path: Path) -> None:
    for case in cases_of(path):
        if case.is_query and _refusal(case.shown()) is None:
            expr = parse(case.shown())
            assert parse(print_expr(expr)) == expr
            assert parse(pretty(expr)) == expr


def _is_valid(case: Case) -> bool:
    error = case.recorded.get("error")
    return error is None or error["message"].startswith(_WHILE_RUNNING)


def _refusal(text: str) -> ParseError | None:
    try:
        parse(text)
    except ParseError as refusal:
        return refusal
    return None
