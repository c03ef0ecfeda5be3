"""The bench of PromQL can be believed: every server gets the same samples, and answers that differ are noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.promql.answers import difference
from bench.promql.lake import _segments
from bench.promql.remote_write import block_of, requests
from bench.promql.sets import HOUR_MS, Kind, MetricSet, histograms_of, values_of
from bench.served.report import Figure

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.store import keys
from lakerunner.store.config import StoreConfig
from lakerunner.store.open import open_store
from tests.components.protobuf import read_fields, read_varint

COUNTER = MetricSet("tiny", "m_total", Kind.COUNTER, 40, 2, 60_000)
CLASSIC = MetricSet("tiny classic", "h", Kind.CLASSIC, 3, 1, 60_000)
NATIVE = MetricSet("tiny native", "n", Kind.NATIVE, 3, 1, 60_000)


def test_counters_grow_and_start_again() -> None:
    values = values_of(COUNTER)
    assert values.shape == (40, 120)
    falls = np.diff(values, axis=1) < 0
    assert 0 < falls.sum() < 40
    assert np.array_equal(values, values_of(COUNTER))


def test_a_lake_and_a_peer_get_the_same_floats(tmp_path: Path) -> None:
    sent = _sent(COUNTER)
    tids = {labels.tid(): labels for labels in sent}
    found: dict[LabelSet, list[tuple[int, float]]] = {labels: [] for labels in sent}
    for rows in _written(COUNTER, tmp_path):
        for row in rows.to_pylist():
            found[tids[row["tid"]]].append((row["timestamp"].timestamp() * 1000, row["value"]))
    assert found == sent


def test_a_lake_and_a_peer_get_the_same_buckets(tmp_path: Path) -> None:
    sent = _sent(CLASSIC)
    rows = pa.concat_tables(_written(CLASSIC, tmp_path)).to_pylist()
    assert len(sent) == 3 * 14 and len(rows) == 3 * 60
    tids = {labels.tid(): labels for labels in CLASSIC.labels()}
    for row in rows:
        series = dict(tids[row["tid"]]) | {METRIC_NAME: "h_bucket"}
        below = np.cumsum(row["h_positive_buckets"]).tolist()
        time_ms = row["timestamp"].timestamp() * 1000
        for le, count in zip([*map(_le, row["h_custom_values"]), "+Inf"], below, strict=True):
            assert (time_ms, count) in sent[LabelSet.of(series | {"le": le})]


def test_native_histograms_are_whole_and_sent_once() -> None:
    entries = [entry for _, body in requests([block_of(NATIVE)]) for entry in _entries(body)]
    assert len(entries) == 3 * 2, "three series in two slices of half an hour"
    counts = histograms_of(NATIVE).counts.sum(axis=2)
    sent = sorted(value for entry in entries for number, value in _nested(entry, 4) if number == 1)
    assert sent == sorted(counts.ravel().tolist())


def test_slices_of_time_advance_together() -> None:
    newest = 0
    for _, body in requests([block_of(COUNTER), block_of(CLASSIC)]):
        times = [at for entry in _entries(body) for at, _ in _floats(entry)]
        assert min(times) > newest - HOUR_MS, "a head refuses what is an hour older than its newest"
        newest = max(newest, *times)


@pytest.mark.parametrize(
    ("theirs", "same"),
    [
        ([["a", [[1, "2"], [2, "3"]]]], True),
        ([["a", [[1, "2"], [2, "3.000000000001"]]]], True),
        ([["a", [[1, "2"], [2, "3.0000001"]]]], False),
        ([["a", [[1, "2"], [3, "3"]]]], False),
        ([["a", [[1, "2"]]]], False),
        ([["b", [[1, "2"], [2, "3"]]]], False),
        ([["a", [[1, "2"], [2, "3"]]], ["b", [[1, "2"]]]], False),
        ([["a", [[1, "2"], [2, "NaN"]]]], False),
    ],
)
def test_a_difference_is_noticed(theirs: list[list[object]], same: bool) -> None:
    found = difference(_answer([["a", [[1, "2"], [2, "3"]]]]), _answer(theirs))
    assert (found is None) == same


def test_of_equals_any_may_be_chosen() -> None:
    ours, theirs = _answer([["a", [[1, "2"], [2, "3"]]]]), _answer([["b", [[1, "2"]]], ["c", [[2, "3"]]]])
    assert difference(ours, theirs) is not None
    assert difference(ours, theirs, any_of_equals=True) is None
    assert difference(ours, _answer([["b", [[1, "2"], [2, "4"]]]]), any_of_equals=True) is not None


def test_an_empty_or_warned_answer_is_none() -> None:
    assert difference(_answer([]), _answer([])) is not None
    warned = orjson.dumps({**orjson.loads(_answer([["a", [[1, "2"]]]])), "warnings": ["a segment is missing"]})
    assert difference(warned, _answer([["a", [[1, "2"]]]])) is not None


def test_targets() -> None:
    def missed(value: float, peer_value: float, most_ratio: float | None = None, most: float | None = None) -> str:
        return Figure("promql", "x", value, "ms", "peer", peer_value, most_ratio, most).missed()

    assert missed(60, 100, 0.5) and not missed(50, 100, 0.5)
    assert not missed(150, 100)
    assert missed(31, 1, most=30) and not missed(30, 1, most=30)


def _answer(series: list[list[object]]) -> bytes:
    result = [{"metric": {"a": name}, "values": values} for name, values in series]
    return orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def _le(bound: float) -> str:
    return f"{bound:g}"


def _written(metric: MetricSet, folder: Path) -> list[pa.Table]:
    store = open_store(StoreConfig(folder.as_uri()))
    segments = list(_segments(store, metric))
    assert len(segments) == metric.hours
    rows = [pq.read_table(folder / keys.segment_keys(one)[0], partitioning=None) for one in segments]
    for one in rows:
        assert one.equals(one.sort_by([(name, "ascending") for name in ("metric_name", "tid", "timestamp")]))
    return rows


def _sent(metric: MetricSet) -> dict[LabelSet, list[tuple[int, float]]]:
    found: dict[LabelSet, list[tuple[int, float]]] = {}
    for samples, body in requests([block_of(metric)]):
        entries = list(_entries(body))
        assert sum(len(_floats(entry)) for entry in entries) == samples
        for entry in entries:
            pairs = [dict(read_fields(value)) for number, value in read_fields(entry) if number == 1]
            labels = LabelSet.of({pair[1].decode(): pair[2].decode() for pair in pairs})
            found.setdefault(labels, []).extend(_floats(entry))
    return found


def _entries(body: bytes) -> list[bytes]:
    length, _ = read_varint(body, 0)
    raw = pa.Codec("snappy").decompress(body, decompressed_size=length, asbytes=True)
    return [value for _, value in read_fields(raw)]


def _floats(entry: bytes) -> list[tuple[int, float]]:
    found = [dict(read_fields(value)) for number, value in read_fields(entry) if number == 2]
    return [(one[2], one[1]) for one in found]


def _nested(entry: bytes, wanted: int) -> list[tuple[int, object]]:
    return [field for number, value in read_fields(entry) if number == wanted for field in read_fields(value)]
