"""Automata find the same texts as RE2, or leave them to RE2."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.scan.rows.conditions.automaton import UNKNOWN, YES, automaton_of
from lakerunner.query.scan.rows.conditions.evaluate import test_of as condition_of
from lakerunner.query.scan.rows.conditions.predicate import Column, Matches

_ALPHABET = "aAbkKs09_- \n\t.[{é\u212a"
_atoms = st.sampled_from(
    [
        "a", "b", "k", "0", "-", " ", "é", ".", "^", "$", r"\b", r"\B", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S",
        "[ab]", "[^a]", "[a-z0-9]", r"[^\d\s]", r"[\w-]", "[]a]", "[a-é]", r"\.", r"\n", r"\x61", r"\x{61}", r"\A",
        r"\z", "(?i:k)", "(?i:[a-c])", "(?s:.)", "{", "a{x", "(?i:[^s])", r"\Qa.\E", r"\141", r"(?i:\W)",
        r"[\Wa]", "(?i)",
    ]
)  # fmt: skip
_patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + "|".join(parts) + ")"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,1}", "*?", "+?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda part: f"(?P<name>{part})"),
    ),
    max_leaves=8,
)


@settings(max_examples=400)
@given(pattern=_patterns, drawn=st.lists(st.text(_ALPHABET, max_size=24), min_size=1, max_size=20))
def test_an_automaton_finds_what_re2_finds(pattern: str, drawn: list[str]) -> None:
    texts = pa.array(drawn)
    try:
        expected = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return
    automaton = automaton_of(pattern)
    if automaton is None:
        return
    verdicts = automaton.verdicts(*text_bytes(texts))
    known = verdicts != UNKNOWN
    assert np.array_equal((verdicts == YES)[known], expected[known])
    is_ascii = np.array([text.isascii() for text in drawn])
    assert known[is_ascii].all()


@pytest.mark.parametrize(
    "pattern",
    [
        r"[a-z]+-\d{4}[13579]\b",
        "(GET|POST) .* 404 ",
        "(?i)charged PAYMENT",
        '^{.*"took_ms":1\\d\\d,',
        "^(?s:a.*b)$",
        r"\Qa.b\E+",
        "(?U)a+",
    ],
)
def test_usual_patterns_have_an_automaton(pattern: str) -> None:
    assert automaton_of(pattern) is not None


@pytest.mark.parametrize(
    "pattern", ["[[:alpha:]]", r"\pL", "(?m)^a", "(?i)é", "a(?i){0,1}", "(a{30}b?){30}", "a" + "*" * 1_500]
)
def test_other_patterns_are_left_to_re2(pattern: str) -> None:
    assert automaton_of(pattern) is None


def test_pieces_of_many_texts_are_matched_by_an_automaton_or_re2() -> None:
    """Texts outside ASCII, nulls, and a slice."""
    lines = ["user-00013 left", "user-00012 left", "über user-00013", None, "", "x" * 100, "a-1234é5"] * 4_000
    texts = pa.array(lines).slice(3)
    pattern = r"[a-z]+-\d{4}[13579]\b"
    found = condition_of(Matches(Column("message"), pattern, anchored=False))(texts)
    expected = pc.fill_null(pc.match_substring_regex(texts, pattern), False).to_numpy(zero_copy_only=False)
    assert texts.nbytes > 512 << 10
    assert np.array_equal(found, expected)
    assert 0 < found.sum() < len(found)
