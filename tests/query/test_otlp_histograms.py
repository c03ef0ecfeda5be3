"""OTLP histograms, decoded and stored once, answer as Prometheus' own translation of them would."""

from __future__ import annotations

import uuid

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, HistogramDataPoint, MetricsData

from lakerunner.formats.read import read_object
from lakerunner.model.signals.metrics import METRICS
from lakerunner.pipeline.split import parts
from lakerunner.query.series.batch import STALE_BITS
from lakerunner.query.series.matchers import Matcher, MatchKind
from tests.formats.otlp_samples import pairs
from tests.query.lake_of_series import LakeOfSeries

START_NS = 1_763_200_000_000_000_000
BOUNDS = [0.005, 0.1, 1.0, 2.5, 10.0]
_NO_RECORDED_VALUE = 1


def _point(minute: int, **fields: object) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=pairs({"route": "/pay"}),
        start_time_unix_nano=START_NS,
        time_unix_nano=START_NS + minute * 60_000_000_000,
        **fields,  # type: ignore[arg-type]
    )


def _export() -> bytes:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    metric = scope.metrics.add(name="http.duration", unit="s")
    metric.histogram.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.histogram.data_points.extend(
        [
            _point(1, count=10, sum=7.5, bucket_counts=[1, 0, 4, 0, 2, 3], explicit_bounds=BOUNDS),
            _point(2, count=12, bucket_counts=[1, 0, 4, 2, 2, 3], explicit_bounds=BOUNDS),
            _point(3, count=4, sum=1.0),
            _point(4, flags=_NO_RECORDED_VALUE, explicit_bounds=BOUNDS),
        ]
    )
    return data.SerializeToString()


def _read(lake: LakeOfSeries, name: str) -> dict[str, list[tuple[int, float | str]]]:
    """Series by their `le`: minutes and values, "stale" for the marker."""
    org_id = uuid.uuid4()
    [tables] = parts(METRICS, read_object(_export(), METRICS, "metrics.binpb").tables, 0)
    lake.commit(org_id, [lake.put_tables(org_id, tables)])
    start_ms = START_NS // 1_000_000
    matchers = [Matcher("__name__", MatchKind.EQUAL, name)]
    batch = lake.lake.query(org_id).select(matchers, start_ms, start_ms + 3_600_000)
    assert {labels.get("route") for labels in batch.labels} <= {"/pay"}
    assert batch.start_timestamps_ms is None or set(batch.start_timestamps_ms.tolist()) <= {start_ms}
    stale = batch.values.view(np.uint64) == STALE_BITS
    found = {}
    for row, labels in enumerate(batch.labels):
        at = range(batch.offsets[row], batch.offsets[row + 1])
        found[labels.get("le")] = [
            ((int(batch.timestamps_ms[i]) - start_ms) // 60_000, "stale" if stale[i] else float(batch.values[i]))
            for i in at
        ]
    return found


def test_buckets_count_up_to_their_bound(lake: LakeOfSeries) -> None:
    assert _read(lake, "http_duration_seconds_bucket") == {
        "0.005": [(1, 1.0), (2, 1.0), (4, "stale")],
        "0.1": [(1, 1.0), (2, 1.0), (4, "stale")],
        "1": [(1, 5.0), (2, 5.0), (4, "stale")],
        "2.5": [(1, 5.0), (2, 7.0), (4, "stale")],
        "10": [(1, 7.0), (2, 9.0), (4, "stale")],
        "+Inf": [(1, 10.0), (2, 12.0), (3, 4.0), (4, "stale")],
    }


def test_the_count(lake: LakeOfSeries) -> None:
    assert _read(lake, "http_duration_seconds_count") == {"": [(1, 10.0), (2, 12.0), (3, 4.0), (4, "stale")]}


def test_the_sum_is_absent_where_none_was_sent(lake: LakeOfSeries) -> None:
    assert _read(lake, "http_duration_seconds_sum") == {"": [(1, 7.5), (3, 1.0), (4, "stale")]}


def test_the_histogram_itself(lake: LakeOfSeries) -> None:
    assert [minute for minute, _ in _read(lake, "http_duration_seconds")[""]] == [1, 2, 3, 4]
