"""Implication between matchers, decided soundly: what is not decided is not implied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from lakerunner.query.rules.automata import Undecided, counterexample
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import whole

#: Decisions that are remembered, and how long their texts may be. Dashboards ask the same of the same rules, at other
#: times, and an automaton takes a millisecond.
_KNOWN, _LONGEST = 4_096, 1_000


def implies(given: Sequence[Matcher], wanted: Matcher) -> bool:
    """Whether every row that satisfies all of `given` satisfies `wanted`, for certain.

    >>> both = [Matcher("job", MatchKind.REGEX, "api-.+"), Matcher("job", MatchKind.NOT_EQUAL, "api-test")]
    >>> implies(both, Matcher("job", MatchKind.REGEX, "a.*")), implies(both, Matcher("job", MatchKind.NOT_EQUAL, "api"))
    (True, True)
    """
    if wanted in given or accepts_all(wanted):
        return True
    of_label = tuple(matcher for matcher in given if matcher.name == wanted.name)
    is_short = sum(len(each.value) for each in (*of_label, wanted)) <= _LONGEST
    return (_known if is_short else _decided)(of_label, wanted)


def _decided(of_label: tuple[Matcher, ...], wanted: Matcher) -> bool:
    """Whether matchers of one label imply another."""
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


_known = lru_cache(maxsize=_KNOWN)(_decided)


def accepted_values(matcher: Matcher) -> frozenset[str] | None:
    """The only values that the matcher accepts, if they are listed in it."""
    if matcher.kind is MatchKind.EQUAL:
        return frozenset({matcher.value})
    return whole(matcher.value).texts if matcher.kind is MatchKind.REGEX else None


def accepts_all(matcher: Matcher) -> bool:
    return matcher.kind is MatchKind.REGEX and matcher.value == ".*"
