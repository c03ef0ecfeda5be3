"""The search over a common buffer finds what Python's `in` finds, value by value."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.scan.rows.conditions import substring
from lakerunner.query.scan.rows.conditions.substring import Needle, containing

_TEXTS = st.one_of(st.none(), st.text("abAB-é\u212a", max_size=6), st.text("ab", min_size=60, max_size=150))


def lowered(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


@given(
    rows=st.lists(_TEXTS, max_size=30),
    text=st.text("abAB-é", max_size=4),
    ignore_case=st.booleans(),
    begin=st.integers(0, 4),
)
def test_it_finds_what_python_finds(rows: list[str | None], text: str, ignore_case: bool, begin: int) -> None:
    found = containing(pa.array(rows, pa.string()).slice(begin), Needle(text, ignore_case))
    expected = [
        row is not None and (lowered(text) in lowered(row) if ignore_case else text in row) for row in rows[begin:]
    ]
    assert found.tolist() == expected


def test_a_hit_across_two_values_does_not_count() -> None:
    assert containing(pa.array(["xab", "cdx", "abcd", None, "abc"]), Needle("abcd")).tolist() == [0, 0, 1, 0, 0]


def test_frequent_and_rare_texts_in_many_values() -> None:
    rows = [f"GET /items/{number} took {number % 7} ms" for number in range(20_000)]
    texts = pa.array(rows)
    for text in ("GET", "/items/19999", "took 3", "5 ms", "absent", "s"):
        assert containing(texts, Needle(text)).tolist() == [text in row for row in rows]


def test_texts_that_almost_fit_everywhere_are_left_to_a_linear_search() -> None:
    texts = pa.array(["a" * 2_000_000, "a" * 100_000 + "b" + "a" * 100_000])
    needle = Needle("a" * 50_000 + "b" + "a" * 50_000)
    began = time.process_time()
    assert containing(texts, needle).tolist() == [False, True]
    assert time.process_time() - began < 2


def test_the_two_bytes_are_those_that_come_together_seldom() -> None:
    data = np.frombuffer(b"payment-7654321 " * 1_000, np.uint8)
    wanted = np.frombuffer(b"payment-7054321", np.uint8)
    first, second = substring.choose_places(data, wanted, np.zeros(len(wanted), np.uint8))
    assert 9 in (first, second)
