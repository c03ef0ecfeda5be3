"""Numbers of label sets: the same for equal labels, in whatever pieces and dictionaries they come."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.query.logql.entries import Category, Entries
from lakerunner.query.logql.eval.series_ids import series_ids
from tests.examples import examples
from tests.query.logql.eval.memory_entries import Entry, entries_of

_NAMES = ("a", "b", "c", "d")
#: Values are hashed and compared eight bytes at a time: some differ in the last byte of a word, or in their length.
_VALUES = ("", "1", "2", "ü", "abcdefg", "abcdefgh", "abcdefgi", "abcdefghi", "abcdefgh" * 2, "abcdefgh" * 2 + "i")
_labels = st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_VALUES))
_pieces = st.lists(st.lists(_labels, max_size=12), max_size=5)


@pytest.fixture(params=[0, 20, 1 << 16], ids=["searched for", "searched for later", "in a table"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Series of few possible combinations are found in another way."""
    monkeypatch.setattr("lakerunner.query.logql.eval.series_ids._FEW_COMBINATIONS", request.param)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("by", [None, (), ("a",), ("a", "c")])
@given(pieces=_pieces)
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_labels_have_one_number(by: tuple[str, ...] | None, pieces: list[list[dict[str, str]]]) -> None:
    ids = series_ids(None if by is None else frozenset(by), frozenset({"d"} if by is None else ()))
    kept = ("a", "b", "c") if by is None else by
    found: list[tuple[int, tuple[tuple[str, str], ...]]] = []
    for piece in pieces:
        numbers = ids.of(entries_of([Entry(0, labels) for labels in piece])).tolist()
        wanted = [tuple(sorted((name, labels[name]) for name in kept if name in labels)) for labels in piece]
        found += zip(numbers, wanted, strict=True)
    labels = ids.labels()
    assert len(labels) == ids.count == len({wanted for _, wanted in found})
    assert all(labels[number].pairs == wanted for number, wanted in found)


@pytest.mark.parametrize("by", [(), ("a",), ("a", "c")])
@given(pieces=_pieces)
@settings(max_examples=examples(20), deadline=None)
def test_totals_are_counts_of_numbers(by: tuple[str, ...], pieces: list[list[dict[str, str]]]) -> None:
    one_by_one, together = series_ids(frozenset(by)), series_ids(frozenset(by))
    expected, found = Counter[tuple[tuple[str, str], ...]](), Counter[tuple[tuple[str, str], ...]]()
    for piece in pieces:
        entries = entries_of([Entry(0, labels) for labels in piece])
        numbers = one_by_one.of(entries).tolist()
        expected.update(one_by_one.labels()[number].pairs for number in numbers)
        for number, total in zip(*(each.tolist() for each in together.totals(entries)), strict=True):
            found[together.labels()[number].pairs] += total
    assert found == expected and together.count == one_by_one.count


def test_totals_of_a_dictionary_with_equal_words_and_nulls() -> None:
    ids = series_ids(frozenset({"a"}))
    dictionary = pa.array(["x", None, "x", "never used"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 0], pa.int32()), dictionary)
    series, totals = ids.totals(entries_of([Entry(0, {})] * 5).with_label("a", column))
    found: Counter[str] = Counter()
    for number, total in zip(series.tolist(), totals.tolist(), strict=True):
        found[ids.labels()[number].get("a")] += total
    assert found == {"x": 3, "": 2} and ids.count == 2


def test_a_dictionary_much_larger_than_its_entries() -> None:
    ids = series_ids(frozenset({"a"}))
    dictionary = pa.array([f"value {number}" for number in range(1000)])
    for codes, wanted in (([7, None, 999], [0, 1, 2]), ([None, 999, 7], [1, 2, 0]), ([5], [3])):
        column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), dictionary)
        piece = entries_of([Entry(0, {})] * len(codes)).with_label("a", column)
        assert ids.of(piece).tolist() == wanted
    assert [labels.get("a") for labels in ids.labels()] == ["value 7", "", "value 999", "value 5"]


def test_a_label_in_several_categories_is_one_label() -> None:
    ids = series_ids(None)
    none = pa.array([None, None], pa.string())
    columns = {
        (Category.STREAM, "a"): pa.array(["1", None]),
        (Category.PARSED, "a"): pa.array([None, "1"]),
        (Category.METADATA, "b"): none,
    }
    entries = entries_of([Entry(0, {}), Entry(1, {})])
    assert ids.of(Entries(entries.times_ns, entries.lines, columns)).tolist() == [0, 0]
    assert [labels.pairs for labels in ids.labels()] == [(("a", "1"),)]
