"""Which entries the matchers of a selector accept.

An entry without the label counts as one with an empty value. Unlike in label filters, a pattern always has to match the
whole value, newlines included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.query.logql.entries import Check, Entries, Mask, valid
from lakerunner.query.scan.rows.conditions.evaluate import test_of, tested
from lakerunner.query.scan.rows.conditions.predicate import Column, Compare, In, Leaf, Matches, Op, Text
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import whole


def selected(entries: Entries, matchers: Sequence[Matcher], check: Check) -> Entries:
    """The entries that all matchers accept."""
    for matcher in matchers:
        check()
        entries = entries.filtered(_accepted(entries, matcher, check))
    return entries


def text_leaf(column: Column, matcher: Matcher) -> Leaf:
    """What the matcher says about texts, if it is not negated."""
    if matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL):
        return Compare(column, Op.EQUAL, Text(matcher.value))
    texts = whole(matcher.value).texts
    return Matches(column, matcher.value) if texts is None else In(column, tuple(map(Text, sorted(texts))))


def is_negated(matcher: Matcher) -> bool:
    return matcher.kind in (MatchKind.NOT_EQUAL, MatchKind.NOT_REGEX)


def _accepted(entries: Entries, matcher: Matcher, check: Check) -> Mask:
    values = entries.label(matcher.name)
    if values is None:
        return np.full(len(entries), matcher.matches(""))
    found = tested(test_of(text_leaf(Column(matcher.name), matcher), check), values)
    found = ~found if is_negated(matcher) else found
    if not values.null_count:
        return found
    return np.where(valid(values), found, matcher.matches(""))
