"""Patterns of queries: what they match, and what they may cost."""

from __future__ import annotations

import re

import pytest

from lakerunner.model.errors import BadInput, LimitHit
from lakerunner.query.series import patterns
from lakerunner.query.series.matchers import Matcher, MatchKind, accepting, any_of
from lakerunner.query.series.patterns import whole

TEXTS = ("", "a", "b", "ab", "a.b", "axb", "a|b", "a\\b", "a b", "a\nb", "é", "(a", "A")


@pytest.mark.parametrize(
    "pattern", ["a|b", "", "a|", "|", r"a\.b", r"a\|b|a", r"a\\b", "a b", "a\nb", "é|A", r"\(a", "a,b"]
)
def test_plain_texts_are_a_set_and_match_the_same(pattern: str) -> None:
    assert whole(pattern).instructions == 0
    assert [whole(pattern).accepts(text) for text in TEXTS] == [bool(re.fullmatch(pattern, text)) for text in TEXTS]


@pytest.mark.parametrize("pattern", ["a.b", "a.*", "[ab]", "(a|b)", "a+", "(?i)a", r"a\sb", "^a$", r"\d", "a{1}"])
def test_others_are_programs(pattern: str) -> None:
    assert whole(pattern).instructions > 0
    # A dot matches newlines too, as in Prometheus.
    expected = [bool(re.fullmatch(pattern, text, re.DOTALL)) for text in TEXTS]
    assert [whole(pattern).accepts(text) for text in TEXTS] == expected


def test_any_of_accepts_exactly_these_values() -> None:
    for chosen in TEXTS:
        assert [any_of("x", [chosen, "z"]).matches(text) for text in TEXTS] == [text == chosen for text in TEXTS]


def test_groups_are_captured_only_on_request() -> None:
    pattern = "(.*)" * 2_000
    assert whole(pattern).groups == 0
    assert whole(pattern).instructions < 100
    assert whole(pattern, captures=True).groups == 2_000
    assert whole("(a)(b)?(?P<last>c)", captures=True).groups_of("ac") == ("ac", "a", "", "c")


def test_every_value_is_followed_by_a_check_where_values_cost_much() -> None:
    checks = []
    matcher = Matcher("x", MatchKind.REGEX, "|".join(f".*{letter}[a-z]{{900}}" for letter in "abcdefgh"))
    accepts = accepting([matcher], lambda: checks.append(None))
    for number in range(100):
        accepts(f"{number:1000}")
    assert len(checks) == 100
    cheap = accepting([Matcher("x", MatchKind.REGEX, "a.*")], lambda: checks.append(None))
    for number in range(100):
        cheap(f"{number}")
    assert len(checks) == 100, "a check per cheap value would cost more than the value"


def test_a_check_that_raises_ends_the_loop() -> None:
    def over() -> None:
        raise LimitHit("its time is over")

    accepts = accepting([Matcher("x", MatchKind.REGEX, "(.*)a{900}")], over)
    with pytest.raises(LimitHit, match="its time"):
        list(map(accepts, (f"{number:9}" for number in range(1_000))))


def test_limits_name_the_pattern_and_the_limit() -> None:
    with pytest.raises(BadInput, match=r"pL.*too large.*2,097,152 bytes"):
        whole(r"(\pL|[^x]){900}" * 50)
    with pytest.raises(LimitHit, match=r"cannot match.*a\{900\}.*1,000,000 bytes.*536,870,912"):
        whole("(.*)a{900}").steps(1_000_000)
    guard = patterns.PatternGuard()
    with pytest.raises(BadInput, match="500,000 instructions"):
        for _ in range(1_000):
            guard.spend(whole("a{900}"))


@pytest.mark.parametrize("pattern", [r"\C", r"a\Cb", "(?P<é>x)", "(?<größe>x)"])
def test_what_only_this_re2_reads_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="cannot read regular expression"):
        patterns.compiled(pattern, True, dot_nl=False)


@pytest.mark.parametrize("pattern", [r"\\C", r"[\\C]", r"\Q\C\E", "é(?P<e>é)", "(?P<1a>x)"])
def test_what_looks_like_it_is_read(pattern: str) -> None:
    patterns.compiled(pattern, True, dot_nl=False)
