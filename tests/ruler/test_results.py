"""Histograms of recording rules become columns that say the same as each histogram by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.signals.metrics import SAMPLES
from lakerunner.query.series.histograms.histogram import CUSTOM_SCHEMA, Histogram, ResetHint
from lakerunner.ruler.results import histogram_columns


def _spans(index: list[int]) -> list[dict[str, int]]:
    spans = [{"offset": index[0], "length": 1}] if index else []
    for before, here in pairwise(index):
        if here == before + 1:
            spans[-1]["length"] += 1
        else:
            spans.append({"offset": here - before - 1, "length": 1})
    return spans


@st.composite
def histograms(draw: st.DrawFn) -> Histogram | None:
    if draw(st.booleans()):
        return None
    positive, negative = (draw(st.lists(st.integers(-9, 9), unique=True, max_size=6).map(sorted)) for _ in range(2))
    bounds = draw(st.lists(st.floats(0, 9), max_size=3))
    return Histogram(
        CUSTOM_SCHEMA if bounds else 3, 4.0, draw(st.floats()), 0.5, 1.0,
        np.array(positive, np.int64), np.arange(len(positive)) + 0.5,
        np.array(negative, np.int64), np.arange(len(negative)) + 1.5,
        tuple(bounds), ResetHint.GAUGE,
    )  # fmt: skip


@given(st.lists(histograms(), max_size=8))
def test_columns_say_what_histograms_say(hists: list[Histogram | None]) -> None:
    columns = histogram_columns(hists)
    assert {name: column.type for name, column in columns.items()} == {
        name: SAMPLES.schema().field(name).type for name in columns
    }
    found = pa.table(columns).to_pylist()
    for hist, row in zip(hists, found, strict=True):
        if hist is None:
            assert set(row.values()) == {None}
            continue
        expected: dict[str, Any] = {
            "h_schema": hist.schema, "h_count": 4.0, "h_zero_threshold": 0.5, "h_zero_count": 1.0,
            "h_positive_spans": _spans(hist.pos_index.tolist()), "h_positive_buckets": hist.pos_count.tolist(),
            "h_negative_spans": _spans(hist.neg_index.tolist()), "h_negative_buckets": hist.neg_count.tolist(),
            "h_custom_values": list(hist.bounds), "h_reset_hint": 3,
        }  # fmt: skip
        assert {name: row[name] for name in expected} == expected
        assert np.float64(row["h_sum"]).view(np.uint64) == np.float64(hist.sum).view(np.uint64)
