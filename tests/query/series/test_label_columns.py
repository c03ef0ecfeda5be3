"""Labels as columns: the same order, groups and texts as label sets one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.query.series import label_columns
from lakerunner.query.series.interned import packed
from lakerunner.query.series.label_columns import LabelColumn, LabelColumns, concatenated
from lakerunner.query.series.label_list import (
    LabelList,
    computed,
    distinct,
    grouped,
    in_order,
    metrics,
    packed_labels,
    taken,
    valued,
)
from tests.examples import examples

#: Prefixes of each other, characters below a quote and above ASCII, some that JSON escapes, the first past 16 bits, and
#: some that begin with the same eight bytes.
_TEXTS = ("", "a", "ab", "a!", "a b", "b", "B", "é", "\ufb00", "𝒂", '"', "\\", "a\nb", "\x00", "0", "10", "9")
_TEXTS += ("abcdefgh", "abcdefgi", "abcdefgh1", "abcdefgh0")
_text = st.sampled_from(_TEXTS)
_name = st.sampled_from([METRIC_NAME, "__type__", "__unit__", "A", "a", "a_b", "b", "ß", "le", "z"])
_rows = st.lists(st.dictionaries(_name, _text, max_size=6).map(LabelSet.of), max_size=14)
#: Series of LogQL may have labels without a value.
_with_empty = st.lists(st.dictionaries(_name, _text, max_size=6).map(lambda one: LabelSet(tuple(sorted(one.items())))))


def columns_of(rows: list[LabelSet]) -> LabelColumns:
    names = sorted({name for labels in rows for name, _ in labels}, reverse=True)
    columns = []
    for name in names:
        # With values that no series has, and in no order, as the dictionary of a file is.
        encoded = pa.array(["zz", "unused", *(labels.get(name) for labels in rows)]).dictionary_encode()
        codes, places = encoded.indices.to_numpy()[2:], np.arange(len(rows))
        held = codes >= 0
        columns.append(LabelColumn.of(name, len(rows), places[held], codes[held], encoded.dictionary))
    return LabelColumns.of(len(rows), columns)


def columns_with_empty(rows: list[LabelSet]) -> LabelColumns:
    columns = []
    for name in {name for labels in rows for name, _ in labels}:
        texts = pa.array([None, "unused", *(dict(labels.pairs).get(name) for labels in rows)], pa.string())
        encoded = texts.dictionary_encode("encode")
        absent = encoded.indices[0].as_py()
        dictionary, codes = encoded.dictionary.fill_null(""), encoded.indices.to_numpy()[2:]
        columns.append(LabelColumn.of(name, len(rows), np.arange(len(rows)), codes, dictionary, absent))
    return LabelColumns.of(len(rows), columns)


def both(rows: list[LabelSet]) -> tuple[LabelList, LabelList]:
    columnar = LabelList.of_columns(columns_of(rows))
    assert columnar.columns is not None
    return columnar, LabelList(rows)


@pytest.fixture(params=[1 << 62, 50], ids=["keys in one number", "keys numbered anew"], autouse=True)
def _key_limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_columns, "_MAX_KEY", request.param)


_per_param = settings(deadline=None, max_examples=examples(25))


@_per_param
@given(_rows)
def test_texts_come_back(rows: list[LabelSet]) -> None:
    columnar, plain = both(rows)
    assert [columnar[row] for row in range(len(rows))] == rows
    assert list(columnar) == rows
    assert columnar == plain
    assert packed_labels(LabelList.of_columns(columns_of(rows))).to_pylist() == list(map(packed, rows))
    assert list(LabelList.of_packed(packed_labels(plain))) == rows


@_per_param
@given(_rows)
def test_the_order_is_that_of_pairs(rows: list[LabelSet]) -> None:
    expected = sorted(range(len(rows)), key=lambda row: rows[row].pairs)
    for labels in both(rows):
        order = in_order(labels)
        assert (list(range(len(rows))) if order is None else order.tolist()) == expected
        assert (order is None) == (expected == list(range(len(rows))))
    columnar, _ = both(rows)
    received = LabelList.of_packed(packed_labels(columnar), columnar.ranks)
    order = in_order(received)
    assert (list(range(len(rows))) if order is None else order.tolist()) == expected


@_per_param
@given(_rows, st.lists(_name, max_size=3).map(tuple), st.booleans())
def test_groups_are_those_of_label_sets(rows: list[LabelSet], names: tuple[str, ...], without: bool) -> None:
    (labels, group), (plain_labels, plain_group) = (grouped(one, names, without=without) for one in both(rows))
    assert list(labels) == list(plain_labels)
    assert group.tolist() == plain_group.tolist()


@_per_param
@given(_rows)
def test_what_is_computed_and_whether_it_is_distinct(rows: list[LabelSet]) -> None:
    columnar, plain = both(rows)
    assert distinct(columnar) == distinct(plain) == (len(set(rows)) == len(rows))
    assert list(computed(columnar)) == [labels.of_computed() for labels in rows]
    assert distinct(computed(columnar)) == distinct(computed(plain))


@_per_param
@given(_rows, st.sampled_from(["", "__type__", "a"]))
def test_metrics(rows: list[LabelSet], beside: str) -> None:
    (names, index), (plain_names, plain_index) = (metrics(one, beside) for one in both(rows))
    assert names == plain_names
    assert index.tolist() == plain_index.tolist()


@_per_param
@given(_rows, st.data(), st.booleans(), st.booleans())
def test_some_rows_of_some_rows(rows: list[LabelSet], data: st.DataObject, packed_whole: bool, made: bool) -> None:
    def some(among: int) -> list[int]:
        return data.draw(st.lists(st.integers(0, among - 1), max_size=8)) if among else []

    whole, _ = both(rows)
    if packed_whole:
        assert whole.packed is not None
    if made:
        assert list(whole) == rows
    first = some(len(rows))
    second = some(len(first))
    labels = taken(taken(whole, np.array(first, np.int64)), np.array(second, np.int64))
    expected = [rows[first[row]] for row in second]
    assert packed_labels(labels).to_pylist() == list(map(packed, expected))
    assert packed_labels(computed(labels)).to_pylist() == [packed(one.of_computed()) for one in expected]
    assert list(labels) == expected
    assert list(computed(labels)) == [one.of_computed() for one in expected]
    assert distinct(labels) == (len(set(expected)) == len(expected))


@_per_param
@given(st.lists(_rows, min_size=1, max_size=4))
def test_concatenated(parts: list[list[LabelSet]]) -> None:
    whole = concatenated([columns_of(rows) for rows in parts])
    expected = [labels for rows in parts for labels in rows]
    assert whole.sets() == expected
    order = whole.order()
    ordered = expected if order is None else [expected[row] for row in order.tolist()]
    assert ordered == sorted(expected, key=lambda labels: labels.pairs)


def test_many_names_and_values() -> None:
    rows = [
        LabelSet.of({f"name_{name}": str(row * name % 997) for name in range(1, 40) if (row + name) % 3})
        for row in range(2_000)
    ]
    columnar, plain = both(rows)
    assert list(columnar) == rows
    order, plain_order = in_order(columnar), in_order(plain)
    assert order is not None and plain_order is not None
    assert order.tolist() == plain_order.tolist()
    for names in (("name_1",), ("name_3", "name_7"), tuple(f"name_{name}" for name in range(1, 30))):
        for without in (False, True):
            one, other = (grouped(labels, names, without=without) for labels in (columnar, plain))
            assert list(one[0]) == list(other[0])
            assert one[1].tolist() == other[1].tolist()


@given(
    st.text("xyé\0", max_size=12),
    st.lists(st.text("ab\0ü", max_size=10), unique=True),
    st.booleans(),
)
def test_values_with_a_common_beginning_are_sorted(prefix: str, ends: list[str], with_empty: bool) -> None:
    texts = list(dict.fromkeys([*(prefix + end for end in ends), *([""] if with_empty else [])]))
    order = label_columns._ascending(pa.array(texts, pa.string()))
    assert [texts[place] for place in order] == sorted(texts, key=str.encode)


def test_values_that_differ_after_a_common_beginning_are_sorted_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_columns, "pc", None)
    texts = [f"customer-{number:05}" for number in range(3_000, 0, -7)]
    assert label_columns._ascending(pa.array(["", *texts])).tolist() == [0, *range(len(texts), 0, -1)]


@_per_param
@given(_with_empty)
def test_empty_labels_differ_from_absent_ones(rows: list[LabelSet]) -> None:
    columnar, plain = LabelList.of_columns(columns_with_empty(rows)), LabelList(rows)
    assert list(columnar) == rows
    assert packed_labels(columnar).to_pylist() == [packed(labels) for labels in rows]
    assert distinct(columnar) == distinct(plain)
    order = in_order(columnar)
    assert [rows[row] for row in (range(len(rows)) if order is None else order.tolist())] == sorted(
        rows, key=lambda labels: labels.pairs
    )
    with_values = [LabelSet.of(dict(labels.pairs)) for labels in rows]
    assert list(valued(columnar)) == list(valued(plain)) == with_values
    assert (valued(plain) is plain) == (with_values == rows)
    assert (valued(columnar) is columnar) == (with_values == rows)
