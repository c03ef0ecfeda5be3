from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.otlp import factorize


def by_dict(keys: list) -> tuple[list[int], list[int]]:
    numbers: dict = {}
    first = []
    for at, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = len(numbers)
            first.append(at)
    return [numbers[key] for key in keys], first


def plain(found: tuple) -> tuple[list[int], list[int]]:
    return found[0].tolist(), found[1].tolist()


LISTS = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=20)


@given(LISTS)
def test_equal_lists_have_equal_numbers(lists):
    items = np.array([item for items in lists for item in items], np.int64)
    sizes = np.array([len(items) for items in lists], np.int64)
    assert plain(factorize.factorize_lists(items, sizes)) == by_dict([tuple(items) for items in lists])


def test_a_collision_of_hashes_is_noticed(monkeypatch: pytest.MonkeyPatch):
    honest, calls = factorize._hashes, []

    def colliding(*arguments):
        calls.append(arguments)
        return honest(*arguments) % np.uint64(1 if len(calls) < 3 else 1 << 63)

    monkeypatch.setattr(factorize, "_hashes", colliding)
    items, sizes = np.array([1, 2, 2, 1, 1, 2]), np.array([2, 2, 2])
    assert plain(factorize.factorize_lists(items, sizes)) == ([0, 1, 0], [0, 1])
    assert len(calls) == 3


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**40), st.integers(0, 2)), max_size=20))
def test_equal_rows_have_equal_numbers(rows):
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    assert plain(factorize.factorize_rows(*columns)) == by_dict(rows)
