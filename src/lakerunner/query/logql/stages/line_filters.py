"""Line filters: `|= "a" or "b"`, `!~ "…"`, `|> "<_> done"`, `|= ip("10.0.0.0/8")`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakerunner.query.logql import ast
from lakerunner.query.logql.addresses import parse_addresses
from lakerunner.query.logql.entries import Check, Entries, Mask, Stage
from lakerunner.query.logql.line_patterns import parse_filter_pattern
from lakerunner.query.logql.stages.address_search import mentioning
from lakerunner.query.logql.stages.label_patterns import Everything, NotEmpty, Search, Simple, simplified
from lakerunner.query.logql.stages.matching import containing, searched
from lakerunner.query.logql.stages.patterns import fitting, line_pattern
from lakerunner.query.series import patterns

LineTest: TypeAlias = Callable[[pa.StringArray, Check], Mask]

_EVERYTHING = (Everything(),)
_NEGATED = (ast.LineOp.LACKS, ast.LineOp.MATCHES_NOT, ast.LineOp.FITS_NOT)


def line_filter(stage: ast.LineFilter) -> Stage:
    stage = telling(stage)
    tests = [_test(stage, text) for text in _texts(stage)]
    negated = stage.op in _NEGATED

    def keep(entries: Entries, check: Check) -> Entries:
        check()
        found = np.zeros(len(entries), np.bool_)
        for test in tests:
            found |= test(entries.lines, check)
        return entries.filtered(~found if negated else found)

    return keep


def telling(stage: ast.LineFilter) -> ast.LineFilter:
    """The filter with the patterns that Loki searches for: `a|` and `a|.*` find the lines that contain `a`.

    Loki replaces patterns made of literals and `.*` by plain searches, and leaves out those that every line passes.
    """
    if stage.op not in (ast.LineOp.MATCHES, ast.LineOp.MATCHES_NOT):
        return stage
    texts = stage.texts
    if stage.op is ast.LineOp.MATCHES:
        texts = tuple(text for text in texts if simplified(text.value) != _EVERYTHING) or texts
    return replace(stage, texts=tuple(replace(text, value=_telling(text.value)) for text in texts))


def _telling(pattern: str) -> str:
    searches = simplified(pattern)
    if searches is None or searches == _EVERYTHING:
        return pattern
    # A line of newlines alone is not empty.
    if NotEmpty() not in searches and not patterns.compiled(pattern, False, dot_nl=False).accepts(""):
        return pattern
    return "|".join(map(_searched_for, searches))


def _searched_for(search: Simple) -> str:
    if not isinstance(search, Search):
        # Any line but an empty one.
        return "(?s:.)"
    return f"(?i:{patterns.literal(search.text)})" if search.ignore_case else patterns.literal(search.text)


def is_address(stage: ast.LineFilter, text: ast.LineText) -> bool:
    """Whether `ip("…")` means addresses. As in Loki, in a chain it is a text like any other, unless it is negated."""
    return text.ip and (len(stage.texts) == 1 or stage.op in _NEGATED)


def _texts(stage: ast.LineFilter) -> tuple[ast.LineText, ...]:
    """The texts of a chain without empty ones, which are in every line: Loki leaves them out if there are others."""
    telling = tuple(text for text in stage.texts if text.value)
    return telling if telling and stage.op in (ast.LineOp.CONTAINS, ast.LineOp.MATCHES) else stage.texts


def _test(stage: ast.LineFilter, text: ast.LineText) -> LineTest:
    if is_address(stage, text):
        addresses = parse_addresses(text.value)
        return lambda lines, check: mentioning(lines, addresses, check)
    match stage.op:
        case ast.LineOp.CONTAINS | ast.LineOp.LACKS:
            return lambda lines, check: containing(lines, text.value, check)
        case ast.LineOp.MATCHES | ast.LineOp.MATCHES_NOT:
            return lambda lines, check: searched(lines, text.value, check)
        case ast.LineOp.FITS | ast.LineOp.FITS_NOT:
            pattern = line_pattern(parse_filter_pattern(text.value))
            return lambda lines, check: fitting(lines, pattern, check)
