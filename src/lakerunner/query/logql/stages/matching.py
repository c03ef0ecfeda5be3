"""Which texts a matcher or a regular expression accepts, whole columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.query.logql.entries import Check, Mask
from lakerunner.query.logql.stages.label_patterns import Everything, NotEmpty, Search, Simple, simplified
from lakerunner.query.logql.stages.texts import BYTES_PER_CHECK, Offsets, bytes_of, slices
from lakerunner.query.series import patterns
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import Pattern

#: Steps of a regular expression between two checks, if every byte keeps all instructions active: about a second.
_STEPS_PER_CHECK = 1 << 25


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
    compiled = patterns.compiled(pattern, False, dot_nl=False)
    return by_slices(values, compiled, lambda part: pc.match_substring_regex(part, pattern), check)


def containing(values: pa.StringArray, text: str, check: Check) -> Mask:
    """The values that contain a text."""
    return by_slices(values, None, lambda part: pc.match_substring(part, text), check)


def by_slices(
    values: pa.StringArray, pattern: Pattern | None, judge: Callable[[pa.StringArray], pa.BooleanArray], check: Check
) -> Mask:
    """Judge values, with checks in between. Refuses a pattern that may take too long for the longest of them."""
    _, offsets = bytes_of(values)
    found = [_mask(judge(values.slice(begin, end - begin))) for begin, end in checked(offsets, pattern, check)]
    return np.concatenate(found) if found else np.zeros(0, np.bool_)


def checked(offsets: Offsets, pattern: Pattern | None, check: Check, groups: int = 0) -> Iterator[tuple[int, int]]:
    """Ranges of rows that may be matched between two checks."""
    most = BYTES_PER_CHECK
    if pattern is not None and len(offsets) > 1:
        pattern.steps(int(np.diff(offsets).max()), groups)
        most = min(most, _STEPS_PER_CHECK // max(1, pattern.instructions * (1 + groups)))
    for begin, end in slices(offsets, most):
        check()
        yield begin, end


def _mask(found: pa.BooleanArray) -> Mask:
    mask: Mask = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return mask
