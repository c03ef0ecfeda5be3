"""Log queries of the conformance suite, run by their stages alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from functools import cache

import numpy as np
import pytest

from lakerunner.query.logql import ast
from lakerunner.query.logql.entries import Entries, Mask
from lakerunner.query.logql.parser import parse
from lakerunner.query.logql.stages.compile import compile_stages
from lakerunner.query.series.matchers import Matcher
from tests.components.missing import missing
from tests.query.logql.stages.suite_entries import Labels, rows_of, suite_entries
from tests.query.logqltest.suite import Case, cases_of, find_suite

_SUITE = find_suite()
#: Topics about stages, and those whose queries use them.
_TOPICS = (
    "decolorize",
    "drop_keep",
    "error_semantics",
    "generated",
    "ip",
    "json",
    "label_filters",
    "label_format",
    "limits_direction",
    "line_filters",
    "line_format",
    "logfmt",
    "pattern",
    "pattern_filters",
    "regexp",
    "selectors",
    "structured_metadata",
    "template_functions",
    "units",
    "unpack",
)
#: A label that the entries of this test do not have.
_LEVEL = "detected_level"


def test_the_suite_is_there() -> None:
    if _SUITE is None:
        message = "the LogQL suite is not there: set LAKERUNNER_TEST_LOGQLTEST to its folder"
        missing(message)


@pytest.mark.parametrize("topic", _TOPICS if _SUITE else ())
def test_the_stages_answer_as_recorded(topic: str) -> None:
    assert _SUITE is not None
    cases = [case for case in cases_of(_SUITE.folder / f"{topic}.jsonl") if _is_for_stages(case)]
    assert cases
    wrong = [f"{case.case_id} {case.shown()}" for case in cases if not _as_recorded(case)]
    assert not wrong, "\n".join(wrong)


def _is_for_stages(case: Case) -> bool:
    if "expect_categorized" not in case.recorded or case.is_quirk or _LEVEL in case.shown():
        return False
    return isinstance(parse(case.shown()), ast.LogSelector)


def _as_recorded(case: Case) -> bool:
    expr = parse(case.shown())
    assert isinstance(expr, ast.LogSelector)
    selected = _selected(expr, int(case.params["start"]), int(case.params["end"]))
    ours = _counted(rows_of(compile_stages(expr.stages)(selected, lambda: None)))
    recorded = _counted(
        (int(time_ns), line, stream["stream"], more.get("structuredMetadata", {}), more.get("parsed", {}))
        for stream in case.recorded["expect_categorized"]["result"]
        for time_ns, line, more in stream["values"]
    )
    # Behind the limit there may be more.
    at_limit = recorded.total() >= int(case.params["limit"])
    return not recorded - ours and (at_limit or not ours - recorded)


def _selected(expr: ast.LogSelector, start_ns: int, end_ns: int) -> Entries:
    assert _SUITE is not None
    entries = suite_entries(_SUITE)
    keep = (entries.times_ns >= start_ns) & (entries.times_ns < max(end_ns, start_ns + 1))
    return entries.filtered(np.logical_and.reduce([keep, *map(_matched, expr.matchers)]))


@cache
def _matched(matcher: Matcher) -> Mask:
    assert _SUITE is not None
    entries = suite_entries(_SUITE)
    values = entries.label(matcher.name)
    texts = [None] * len(entries) if values is None else values.to_pylist()
    return np.array([matcher.matches(text or "") for text in texts])


def _counted(rows: Iterable[tuple[int, str, Labels, Labels, Labels]]) -> Counter[str]:
    def text(time_ns: int, line: str, stream: Labels, metadata: Labels, parsed: Labels) -> str:
        known = {name: value for name, value in metadata.items() if name != _LEVEL}
        return json.dumps([time_ns, line, stream, known, parsed], sort_keys=True)

    return Counter(text(*row) for row in rows)
