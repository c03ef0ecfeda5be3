"""Batches of an answer: labels by category, as JSON objects with sorted keys."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.query.logql import answer
from lakerunner.query.logql.answer import SCHEMA, answer_batch
from lakerunner.query.logql.entries import Category, Entries

NAMES = {
    Category.STREAM: ("service_name", "env"),
    Category.METADATA: ("trace_id", 'odd " name', "b"),
    Category.PARSED: ("level", "a"),
}
TEXTS = st.one_of(st.none(), st.sampled_from(["", "x", 'quote"', "back\\slash", "new\nline", "\x00", "é🙂", "\x7f"]))


@pytest.mark.parametrize("few", [0, 100], ids=["in bulk", "one by one"])
@settings(max_examples=50, deadline=None)
@given(data=st.data(), count=st.integers(0, 6))
def test_objects_hold_the_labels_of_their_category(few: int, data: st.DataObject, count: int) -> None:
    columns: dict[tuple[Category, str], pa.Array] = {}
    wanted: dict[Category, list[dict[str, str]]] = {each: [{} for _ in range(count)] for each in Category}
    for category, names in NAMES.items():
        for name in data.draw(st.sets(st.sampled_from(names))):
            values = data.draw(st.lists(TEXTS, min_size=count, max_size=count))
            array = pa.array(values, pa.string())
            columns[category, name] = array.dictionary_encode() if data.draw(st.booleans()) else array
            for labels, value in zip(wanted[category], values, strict=True):
                if value is not None:
                    labels[name] = value
    times = np.arange(count, dtype=np.int64) * 1_000_000_007
    lines = pa.array([f"line {number}" for number in range(count)], pa.string())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "_FEW", few)
        batch = answer_batch(Entries(times, lines, columns))
    assert batch.schema == SCHEMA
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == times.tolist()
    assert batch.column("line").to_pylist() == lines.to_pylist()
    for category, column in zip(Category, ("stream", "metadata", "parsed"), strict=True):
        texts = batch.column(column).to_pylist()
        assert [json.loads(text) for text in texts] == wanted[category]
        assert all(list(json.loads(text)) == sorted(json.loads(text)) for text in texts)


def test_a_stream_is_written_once() -> None:
    values = pa.array(["a", "b"] * 50).dictionary_encode()
    times = np.zeros(100, np.int64)
    batch = answer_batch(Entries(times, pa.array(["x"] * 100), {(Category.STREAM, "service_name"): values}))
    assert batch.column("stream").dictionary.to_pylist() == ['{"service_name":"a"}', '{"service_name":"b"}']
