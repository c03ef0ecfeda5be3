"""A value without the required texts never matches; where they are all that is required, one with them does."""

from __future__ import annotations

import pytest
import re2  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.scan.rows.conditions.required_texts import required_texts
from lakerunner.query.scan.rows.conditions.substring import Needle

#: Pattern -> its clauses, separated by " & ", with their texts between bars; `~` marks a text in any case.
_CLAUSES = {
    r"timeout after 29\d\dms": "timeout after 29 & ms",
    "error|warn": "error | warn",
    "(?i)panic": "~panic",
    # A k and an s have a third case, outside ASCII.
    "(?i)task": "~ta",
    "(?i:err)or": "~err & or",
    "^(?s:foo.*bar)$": "foo & bar",
    "(foo|bar)(baz|qux)": "foobaz | fooqux | barbaz | barqux",
    "(foo+|bar.)baz": "fo | bar & baz",
    "[Ee]rror": "Error | error",
    "[0-9]+": "",
    "x*": "",
    "a|": "",
    r"\bfoo\b": "foo",
    r"\Qa.b\E\.\x41": "a.b.A",
    r"\Qab\E+c": "a & b & c",
    r"a\sb": "a & b",
    # The repetition is one of the letter before the flag.
    "a(?i){0,1}b": "",
    "(?P<name>foo){2,}bar": "foo & bar",
    "(a|b|c|d|e|f)(a|b|c|d|e|f)x": "a | b | c | d | e | f & ax | bx | cx | dx | ex | fx",
}


@pytest.mark.parametrize(("pattern", "expected"), _CLAUSES.items())
def test_clauses(pattern: str, expected: str) -> None:
    clauses = required_texts(pattern).clauses
    shown = [" | ".join("~" * needle.ignore_case + needle.text for needle in clause) for clause in clauses]
    assert " & ".join(shown) == expected


@pytest.mark.parametrize("pattern", ["foo", "foo|bar", "(?i)pa-1", "a[bc]d?"])
def test_texts_that_are_all_of_it(pattern: str) -> None:
    assert required_texts(pattern).is_all


@pytest.mark.parametrize("pattern", ["foo$", r"\bfoo", "foo.", "foo+", "", "(?i)k", "foo.*bar"])
def test_texts_that_are_not_all_of_it(pattern: str) -> None:
    assert not required_texts(pattern).is_all


def test_deep_and_long_patterns_require_nothing() -> None:
    assert not required_texts("(" * 300 + "foo" + ")" * 300).clauses
    assert not required_texts("foo" * 10_000).clauses


_ATOMS = st.one_of(
    st.sampled_from(["a", "b", "A", "K", "s", "é", "-", ".", "ab", "^", "$", "{", r"\.", r"\x61", r"\141", r"\Qab\E"]),
    st.sampled_from(
        [r"\d", r"\w", r"\b", r"\pL", "[ab]", "[^a]", "[a-c]", "[A-Za-z]", "[[:alpha:]]", r"[\d]", "[]a]", "[a-]"]
    ),
)
_REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{0,1}", "{1,2}", "{0}", "+?", "{1}", "{2,}"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        inner.map("({})".format),
        st.tuples(inner, _REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map("(?i){}".format),
        st.tuples(st.sampled_from(["i", "-i", "s-i", "m"]), inner).map(lambda pair: f"(?{pair[0]}:{pair[1]})"),
    ),
    max_leaves=6,
)


@given(pattern=_PATTERNS, texts=st.lists(st.text("abcABKks\u212a\u017fé-.1{]\n", max_size=8), max_size=8))
def test_no_match_is_missed(pattern: str, texts: list[str]) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        regex = re2.compile(pattern, options)
    except re2.error:
        return
    required = required_texts(pattern)
    for text in texts:
        matches = regex.search(text) is not None
        has_all = all(any(_contains(text, needle) for needle in clause) for clause in required.clauses)
        assert has_all or not matches
        assert matches == has_all or not required.is_all


def _contains(text: str, needle: Needle) -> bool:
    if not needle.ignore_case:
        return needle.text in text
    return needle.text in "".join(letter.lower() if letter.isascii() else letter for letter in text)
