"""Implication between matchers never claims what a value contradicts, and knows what everybody would."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.rules.automata import Undecided, automaton_of, counterexample
from lakerunner.query.rules.implication import implies
from lakerunner.query.series.matchers import Matcher, MatchKind
from lakerunner.query.series.patterns import whole

ATOMS = (
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    "\\d",
    "\\.",
    "(a|bc)",
    "(?:ab)",
    "-",
    "[a-c]",
    "1",
    "(?P<n>a)",
    "\\Qa.\\E",
    "(?-s:.)",
)
QUANTIFIERS = ("", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,}")
PATTERNS = st.lists(
    st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(QUANTIFIERS)).map("".join), max_size=4).map("".join),
    min_size=1,
    max_size=3,
).map("|".join)
VALUES = st.text("ab1.-c\n", max_size=5)
MATCHERS = st.one_of(
    st.builds(Matcher, st.just("x"), st.sampled_from([MatchKind.EQUAL, MatchKind.NOT_EQUAL]), VALUES),
    st.builds(Matcher, st.just("x"), st.sampled_from([MatchKind.REGEX, MatchKind.NOT_REGEX]), PATTERNS),
)


def matcher(text: str) -> Matcher:
    found = re.fullmatch(r"(\w+)(=~|!~|!=|=)(.*)", text)
    assert found is not None
    return Matcher(found[1], MatchKind(found[2]), found[3])


@settings(max_examples=150, deadline=None)
@given(pattern=PATTERNS, value=VALUES)
def test_automata_accept_what_re2_accepts(pattern: str, value: str) -> None:
    automaton = automaton_of(pattern)
    states = automaton.closure(frozenset({0}))
    for char in value:
        states = automaton.step(states, ord(char))
    assert (1 in states) == whole(pattern).accepts(value)


@settings(max_examples=200, deadline=None)
@given(known=st.lists(MATCHERS, max_size=3), wanted=MATCHERS, values=st.lists(VALUES, max_size=20))
def test_no_value_contradicts_an_implication(known: list[Matcher], wanted: Matcher, values: list[str]) -> None:
    listed = [each.value for each in (*known, wanted)]
    if implies(known, wanted):
        for value in (*values, *listed, ""):
            assert not all(each.matches(value) for each in known) or wanted.matches(value)


@settings(max_examples=150, deadline=None)
@given(known=st.lists(MATCHERS, max_size=2), wanted=MATCHERS)
def test_a_counterexample_is_one(known: list[Matcher], wanted: Matcher) -> None:
    found = counterexample(known, wanted, steps=200_000)
    if found is not None:
        assert all(each.matches(found) for each in known)
        assert not wanted.matches(found)


@pytest.mark.parametrize(
    ("known", "wanted", "holds"),
    [
        (["x=a"], "x=a", True),
        (["x=a"], "x=b", False),
        (["x=a"], "x!=b", True),
        (["x=~a|b"], "x=~a|b|c", True),
        (["x=~(?P<n>a)b"], "x=ab", True),
        (["x=~\\Aab\\z|c"], "x=~ab|c", True),
        (["x=~a|b"], "x=~a|c", False),
        (["x=~a|b", "x!=b"], "x=a", True),
        (["x=~checkout-.*"], "x=~checkout.*", True),
        (["x=~checkout.*"], "x=~checkout-.*", False),
        (["x=~[0-9]{3}"], "x=~\\d+", True),
        (["x=~5.."], "x!~4..", True),
        (["x!~4.."], "x=~5..", False),
        (["x=~.+"], "x!=", True),
        (["x!="], "x=~.+", True),
        (["y=a"], "x=a", False),
        (["y=a"], "x=~.*", True),
        ([], "x!=a", False),
        # A value that no text has implies everything.
        (["x=a", "x=b"], "x=c", True),
    ],
)
def test_implications(known: list[str], wanted: str, holds: bool) -> None:
    assert implies([matcher(each) for each in known], matcher(wanted)) is holds


@pytest.mark.parametrize(
    "pattern", ["(?i)a.*", "(?i)\\w", "\\pL+", "[[:alpha:]]+", "a\\b.*", "(a|b)^c", "(^a)b", "^{1}a", "(?m)^a"]
)
def test_syntax_that_is_not_read_is_undecided(pattern: str) -> None:
    with pytest.raises(Undecided):
        automaton_of(pattern)
    assert not implies([Matcher("x", MatchKind.REGEX, pattern)], matcher("x=~.*a.*"))


def test_a_comparison_has_a_budget() -> None:
    hard = Matcher("x", MatchKind.REGEX, "(a|b)*a" + "(a|b)" * 18)
    with pytest.raises(Undecided):
        counterexample([hard], Matcher("x", MatchKind.NOT_REGEX, "(a|b)*b" + "(a|b)" * 17))
    with pytest.raises(Undecided):
        automaton_of("(a{100}){100}")
