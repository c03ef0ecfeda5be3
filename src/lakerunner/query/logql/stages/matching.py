"""Which texts a matcher or a regular expression accepts, whole columns at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Check, Mask
from lakerunner.query.logql.stages.label_patterns import Everything, NotEmpty, Search, Simple, simplified
from lakerunner.query.scan.rows.conditions.evaluate import test_of
from lakerunner.query.scan.rows.conditions.predicate import Column, Contains, Matches
from lakerunner.query.series import patterns
from lakerunner.query.series.matchers import Matcher, MatchKind

#: The scan of rows has the fast searches. Which column its conditions are about does not matter here.
_ANY = Column("line")


def matching(values: pa.StringArray, matcher: Matcher, check: Check) -> Mask:
    """The values that a label filter accepts. Unlike in selectors, a dot does not match newlines."""
    match matcher.kind:
        case MatchKind.EQUAL | MatchKind.NOT_EQUAL:
            found = _mask(pc.equal(values, pa.scalar(matcher.value, pa.string())))
        case MatchKind.REGEX | MatchKind.NOT_REGEX:
            found = _accepted(values, matcher.value, check)
    return ~found if matcher.kind in (MatchKind.NOT_EQUAL, MatchKind.NOT_REGEX) else found


def _accepted(values: pa.StringArray, pattern: str, check: Check) -> Mask:
    searches = simplified(pattern)
    if searches is None:
        return searched(values, rf"^(?:{pattern})$", check)
    found = np.zeros(len(values), np.bool_)
    for search in searches:
        found |= _found(values, search, check)
    return found


def _found(values: pa.StringArray, search: Simple, check: Check) -> Mask:
    match search:
        case Everything():
            return np.ones(len(values), np.bool_)
        case NotEmpty():
            return _mask(pc.not_equal(values, ""))
        case Search(text, anywhere, ignore_case):
            if ignore_case:
                literal = f"(?i){patterns.literal(text)}"
                return searched(values, literal if anywhere else f"^{literal}$", check)
            return containing(values, text, check) if anywhere else _mask(pc.equal(values, pa.scalar(text)))


def searched(values: pa.StringArray, pattern: str, check: Check) -> Mask:
    """The values in which a pattern matches anywhere."""
    return test_of(Matches(_ANY, pattern, anchored=False), check)(values)


def containing(values: pa.StringArray, text: str, check: Check) -> Mask:
    """The values that contain a text."""
    return test_of(Contains(_ANY, text), check)(values)


def _mask(found: pa.BooleanArray) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask
