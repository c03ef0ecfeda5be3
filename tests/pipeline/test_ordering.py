from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.pipeline.ordering import sort_order, sorted_table

texts = st.one_of(st.none(), st.text("abcé", max_size=3))
small = st.one_of(st.none(), st.integers(-5, 5))
wide = st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1))
rows = st.lists(st.tuples(texts, small, wide), max_size=40)


def table_of(values: list[tuple[Any, ...]], *, dictionary: bool, chunks: int) -> pa.Table:
    table = pa.table(
        {
            "text": pa.array([value[0] for value in values], pa.string()),
            "small": pa.array([value[1] for value in values], pa.int32()),
            "wide": pa.array([value[2] for value in values], pa.int64()),
            "row": pa.array(range(len(values)), pa.int64()),
        }
    )
    step = max(1, -(-len(values) // chunks))
    pieces = [table.slice(start, step) for start in range(0, max(1, len(values)), step)]
    if dictionary:
        pieces = [piece.set_column(0, "text", piece.column("text").dictionary_encode()) for piece in pieces]
    return pa.concat_tables(pieces)


def expected(values: list[tuple[Any, ...]], key: tuple[int, ...]) -> list[int]:
    def of(row: int) -> list[tuple[bool, Any]]:
        cells = [values[row][column] for column in key]
        # Text sorts by its bytes, as Parquet's statistics do.
        return [(cell is None, cell.encode() if isinstance(cell, str) else cell or 0) for cell in cells]

    return sorted(range(len(values)), key=of)


@given(rows, st.booleans(), st.integers(1, 4), st.permutations([0, 1, 2]), st.integers(1, 3))
def test_rows_come_in_the_order_of_the_key_and_equal_ones_stay(
    values: list[tuple[Any, ...]], dictionary: bool, chunks: int, columns: list[int], count: int
) -> None:
    key = tuple(columns[:count])
    table = table_of(values, dictionary=dictionary, chunks=chunks)
    names = ("text", "small", "wide")
    ordered = sorted_table(table, [names[column] for column in key])
    assert ordered.column("row").to_pylist() == expected(values, key)
    assert ordered.column("text").to_pylist() == [values[row][0] for row in ordered.column("row").to_pylist()]


def test_a_table_in_order_is_left_alone() -> None:
    table = pa.table({"a": ["x", "x", "y"], "b": [1, 2, 0]})
    assert sort_order(table, ("a", "b")) is None
    assert sorted_table(table, ("a", "b")) is table


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_to_sort(count: int) -> None:
    assert sort_order(pa.table({"a": pa.array(range(count), pa.int64())}), ("a",)) is None


def test_keys_of_more_than_63_bits_are_sorted_column_by_column() -> None:
    rng = np.random.default_rng(3)
    columns = {name: rng.integers(0, 1 << 40, 500) for name in ("a", "b")}
    table = pa.table(columns)
    order = sort_order(table, ("a", "b"))
    assert order is not None
    assert order.tolist() == np.lexsort((columns["b"], columns["a"])).tolist()
