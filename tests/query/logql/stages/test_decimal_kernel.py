"""Short decimal numbers: what Python reads, to the last bit; others are left alone."""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.text_bytes import text_bytes
from lakerunner.query.logql.stages.decimal_kernel import read_short_decimals
from lakerunner.query.logql.stages.quantities import number, quantities

_decimals = st.from_regex(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", fullmatch=True)
_others = st.one_of(
    st.text("0123456789.-+eE_xnaif ", max_size=24), st.sampled_from(["9" * 15, "1" + "0" * 15, "0." + "9" * 15])
)


@given(st.lists(st.one_of(_decimals, _others, st.none()), min_size=1, max_size=20))
def test_it_reads_what_python_reads(texts: list[str | None]) -> None:
    values = pa.array(texts, pa.string())
    present = np.array([text is not None for text in texts])
    numbers = np.full(len(texts), math.nan)
    short = [at for at, text in enumerate(texts) if text is not None and _is_short(text)]
    assert read_short_decimals(*text_bytes(values), present, numbers) == len(short)
    for at, text in enumerate(texts):
        expected = float(text) if at in short and text is not None else math.nan
        assert np.array([expected]).tobytes() == numbers[at : at + 1].tobytes()


def test_columns_with_other_texts_have_the_numbers_of_all() -> None:
    values = pa.array(["1.5", "0.1234567890123456789", None, "-0", "1e3", "7"], pa.string())
    found = quantities(values, number, lambda: None)
    assert found.numbers[[0, 1, 3, 4, 5]].tolist() == [1.5, 0.1234567890123456789, 0.0, 1000.0, 7.0]
    assert math.copysign(1, found.numbers[3]) == -1


def _is_short(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text) is not None and sum(c.isdigit() for c in text) <= 15
