"""Texts get a dictionary in memory only if that saves something."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.query.scan.rows.row_group.dictionaries import with_dictionary

ROWS = 40_000


@pytest.mark.parametrize("distinct", [1, 5_000])
def test_repeated_texts_get_one(distinct: int) -> None:
    chosen = np.random.default_rng(1).integers(0, distinct, ROWS).tolist()
    texts = pa.array([None if row % 100 == 0 else f"user-{number}" for row, number in enumerate(chosen)])
    found = with_dictionary(texts)
    assert pa.types.is_dictionary(found.type)
    assert found.dictionary_decode().equals(texts)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([f"line {row}" for row in range(ROWS)]),
        pa.array(["few"] * 100),
        pa.array(range(ROWS)),
        pa.array(["a", "b"] * ROWS).dictionary_encode(),
    ],
    ids=["distinct", "few", "numbers", "encoded"],
)
def test_others_stay_as_they_are(array: pa.Array) -> None:
    assert with_dictionary(array) is array
