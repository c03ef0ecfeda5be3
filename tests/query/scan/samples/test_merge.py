"""Merging parts: the same as putting samples one by one into a dictionary, whatever the parts look like."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.signals.metrics import SERIES
from lakerunner.query.scan.samples import merge as merge_module
from lakerunner.query.scan.samples.merge import merge
from lakerunner.query.scan.samples.runs import Samples
from lakerunner.query.scan.samples.series_table import SeriesTable, TableLabels
from lakerunner.query.series.arrays import offsets_of
from lakerunner.query.series.batch import STALE, STALE_BITS
from lakerunner.query.series.histograms.column import HistogramColumn
from lakerunner.query.series.histograms.histogram import Histogram
from lakerunner.query.series.label_list import LabelList

_ORG = uuid.UUID(int=1)
_SERIES = [LabelSet.of({"__name__": "m", "n": str(number)}) for number in range(4)]
_part = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 12), min_size=1, max_size=6).map(sorted)),
    min_size=0,
    max_size=5,
)


def _samples(runs: list[tuple[int, list[int]]], number: int, *, starts: bool, hists: bool) -> Samples:
    """Values tell their part, so that it shows whose sample was kept."""
    lengths = np.array([len(times) for _, times in runs], np.int64)
    times = np.array([time for _, run in runs for time in run], np.int64)
    values = times * 100.0 + number
    column = None
    if hists:
        column = HistogramColumn.of([Histogram(count=value) if value % 3 == 0 else None for value in values.tolist()])
    return Samples(
        np.array([_SERIES[series].tid() for series, _ in runs], np.int64),
        [_SERIES[series] for series, _ in runs],
        offsets_of(lengths),
        times,
        values,
        times + 1 if starts else None,
        column,
    )


@pytest.mark.parametrize("tabled", [True, False])
def test_ids_with_equal_labels_are_one_series(tabled: bool) -> None:
    """Segments from before the key of ids have other ids for the same series."""
    series = [LabelSet.of({METRIC_NAME: "m", "n": str(number)}) for number in range(3)]
    parts = []
    for number, key in enumerate((b"", b"key")):
        tids = np.array([labels.tid(key) for labels in series], np.int64)
        rows = [
            {"tid": tid, "metric_name": "m", "labels": list(labels.without(METRIC_NAME))}
            for tid, labels in zip(tids.tolist(), series, strict=True)
        ]
        table = SeriesTable.of(pa.Table.from_pylist(rows, schema=SERIES.schema()))
        times, values = np.full(3, number), np.arange(3) + 10.0 * number
        parts.append(Samples(tids, TableLabels(table, tids) if tabled else series, np.arange(4), times, values))
    batch = merge(parts, uuid.uuid4())
    assert list(batch.labels) == series
    assert batch.offsets.tolist() == [0, 2, 4, 6]
    assert batch.values.tolist() == [0.0, 10.0, 1.0, 11.0, 2.0, 12.0]


@settings(deadline=None)  # The first call compiles.
@given(st.lists(st.tuples(_part, st.booleans(), st.booleans()), max_size=4))
def test_merging_is_like_a_dictionary(parts: list[tuple[list[tuple[int, list[int]]], bool, bool]]) -> None:
    expected: dict[LabelSet, dict[int, tuple[float, int, float | None]]] = {}
    for number, (runs, starts, hists) in enumerate(parts):
        for series, times in runs:
            for time in times:
                value = time * 100.0 + number
                sample = (value, time + 1 if starts else 0, value if hists and value % 3 == 0 else None)
                expected.setdefault(_SERIES[series], {}).setdefault(time, sample)
    batch = merge(
        [_samples(runs, number, starts=starts, hists=hists) for number, (runs, starts, hists) in enumerate(parts)],
        _ORG,
    )
    assert list(batch.labels) == sorted(expected, key=lambda labels: labels.pairs)
    for row, labels in enumerate(batch.labels):
        at = range(batch.offsets[row], batch.offsets[row + 1])
        got = {
            int(batch.timestamps_ms[i]): (
                float(batch.values[i]),
                0 if batch.start_timestamps_ms is None else int(batch.start_timestamps_ms[i]),
                _count(batch.histograms, i),
            )
            for i in at
        }
        assert [int(batch.timestamps_ms[i]) for i in at] == sorted(expected[labels])
        assert got == expected[labels]


def _count(column: HistogramColumn | None, i: int) -> float | None:
    return None if column is None or column.row[i] < 0 else column.at(int(column.row[i])).count


def test_the_bits_of_a_stale_marker_stay() -> None:
    tid = np.array([_SERIES[0].tid()])
    first = Samples(tid, _SERIES[:1], np.array([0, 1]), np.array([1]), np.array([STALE]))
    second = Samples(tid, _SERIES[:1], np.array([0, 2]), np.array([0, 1]), np.array([1.0, 2.0]))
    batch = merge([first, second], _ORG)
    assert batch.timestamps_ms.tolist() == [0, 1]
    assert batch.values.view(np.uint64)[1] == STALE_BITS


_labels = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "x", "y", "xy", "é"]), max_size=3)
_segment = st.lists(_labels.map(lambda labels: LabelSet.of({METRIC_NAME: "m", **labels})), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(_segment, st.booleans()), min_size=1, max_size=4))
def test_series_of_several_tables_are_in_the_order_of_their_labels(segments: list[tuple[list[LabelSet], bool]]) -> None:
    """Tables have dictionaries of their own. Labels of some parts come over the network, without a table."""
    merge_module._KNOWN.clear()
    merge_module._ORDERS.clear()
    parts = []
    for number, (series, tabled) in enumerate(segments):
        series = sorted(set(series), key=lambda labels: labels.tid())
        tids = np.array([labels.tid() for labels in series])
        rows = [{"tid": one.tid(), "metric_name": "m", "labels": list(one.without(METRIC_NAME))} for one in series]
        table = SeriesTable.of(pa.Table.from_pylist(rows, schema=SERIES.schema()))
        labels = TableLabels(table, tids) if tabled else LabelList(series)
        times = np.full(len(series), number)
        parts.append(Samples(tids, labels, np.arange(len(series) + 1), times, tids.astype(np.float64)))
    batch = merge(parts, _ORG)
    expected = sorted({labels for series, _ in segments for labels in series}, key=lambda labels: labels.pairs)
    assert list(batch.labels) == expected
    # Whose samples they are.
    lengths = np.diff(batch.offsets)
    assert batch.values.tolist() == np.repeat([float(labels.tid()) for labels in expected], lengths).tolist()
    assert lengths.tolist() == [sum(one in series for series, _ in segments) for one in expected]
