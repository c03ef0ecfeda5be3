"""Rows that repeat an earlier row are marked, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.log_details import with_details
from lakerunner.model.signals import LOGS
from lakerunner.pipeline.ordering import sorted_table
from lakerunner.pipeline.repeats import with_repeats

_ROWS = st.fixed_dictionaries(
    {
        "timestamp": st.integers(1, 3),
        "service_name": st.sampled_from([None, "a", "b"]),
        "message": st.sampled_from([None, "", "n=1", "n=2"]),
        "attr_n": st.sampled_from([None, 1.0, 2.0]),
        "attributes_overflow": st.sampled_from([None, [("attr_x", "1")], [("attr_x", "2")]]),
    }
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    schema = LOGS.rows.schema().append(pa.field("attr_n", pa.float64()))
    schema = schema.append(pa.field("attributes_overflow", pa.map_(pa.string(), pa.string())))
    return sorted_table(with_details(pa.Table.from_pylist(rows, schema=schema)), LOGS.rows.sort_key)


@given(st.lists(_ROWS, max_size=12))
def test_every_row_but_the_first_of_its_equals_is_marked(rows: list[dict[str, Any]]) -> None:
    table = table_of(rows)
    seen: set[str] = set()
    wanted: list[bool | None] = []
    for row in table.to_pylist():
        wanted.append(True if repr(row) in seen else None)
        seen.add(repr(row))
    assert with_repeats(table).column("repeat").to_pylist() == wanted


def test_nothing_is_marked_where_times_differ() -> None:
    table = table_of([{"timestamp": int(at), "message": "same"} for at in np.arange(1, 50)])
    assert with_repeats(table) is table
