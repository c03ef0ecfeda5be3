"""Implication between matchers, decided soundly: what is not decided is not implied."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.query.rules.automata import Undecided, counterexample
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import whole


def implies(given: Sequence[Matcher], wanted: Matcher) -> bool:
    """Whether every row that satisfies all of `given` satisfies `wanted`, for certain.

    >>> both = [Matcher("job", MatchKind.REGEX, "api-.+"), Matcher("job", MatchKind.NOT_EQUAL, "api-test")]
    >>> implies(both, Matcher("job", MatchKind.REGEX, "a.*")), implies(both, Matcher("job", MatchKind.NOT_EQUAL, "api"))
    (True, True)
    """
    if wanted in given or accepts_all(wanted):
        return True
    of_label = [matcher for matcher in given if matcher.name == wanted.name]
    # A finite set of values is tried value by value; this also needs none of the patterns to be understood.
    for matcher in of_label:
        values = accepted_values(matcher)
        if values is not None:
            possible = [value for value in values if all(each.matches(value) for each in of_label)]
            return all(wanted.matches(value) for value in possible)
    try:
        return counterexample(of_label, wanted) is None
    except Undecided:
        return False


def accepted_values(matcher: Matcher) -> frozenset[str] | None:
    """The only values that the matcher accepts, if they are listed in it."""
    if matcher.kind is MatchKind.EQUAL:
        return frozenset({matcher.value})
    return whole(matcher.value).texts if matcher.kind is MatchKind.REGEX else None


def accepts_all(matcher: Matcher) -> bool:
    return matcher.kind is MatchKind.REGEX and matcher.value == ".*"
