"""Very many series as real segments: whole columns at once, since a lake for queries of death has millions of rows."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import METRIC_NAME, LabelSet
from lakerunner.model.segment import Segment
from lakerunner.model.signals.metrics import SAMPLES, SERIES
from tests.query.lake_of_series import LakeOfSeries

START_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Wide:
    """How much there is: `segments` of `points` samples each, for every one of `series` series of `names` metrics."""

    series: int
    names: int = 20
    points: int = 60
    step_ms: int = 60_000
    segments: int = 1

    @property
    def end_ms(self) -> int:
        return START_MS + (self.segments * self.points - 1) * self.step_ms


def write_wide(lake: LakeOfSeries, org_id: uuid.UUID, wide: Wide) -> None:
    """Metrics `wide_0`, `wide_1`, … whose series differ in `pod`, and `small` with one series."""
    sets = [
        LabelSet.of({METRIC_NAME: f"wide_{number % wide.names}", "pod": f"pod-{number}", "zone": f"z{number % 7}"})
        for number in range(wide.series)
    ]
    sets.append(LabelSet.of({METRIC_NAME: "small", "pod": "pod-0"}))
    keyed = sorted((labels.get(METRIC_NAME), labels.tid(), labels) for labels in sets)
    names, tids = [name for name, _, _ in keyed], np.array([tid for _, tid, _ in keyed], np.int64)
    labels = [list(one.without(METRIC_NAME)) for _, _, one in keyed]
    series = pa.Table.from_arrays(
        [
            _column(column, {"tid": pa.array(tids), "metric_name": pa.array(names), "labels": labels}, len(names))
            for column in SERIES.columns
        ],
        schema=SERIES.schema(),
    )
    made = [_segment(lake, org_id, wide, number, names, tids, series) for number in range(wide.segments)]
    lake.commit(org_id, made)


def _segment(
    lake: LakeOfSeries,
    org_id: uuid.UUID,
    wide: Wide,
    number: int,
    names: list[str],
    tids: np.ndarray,
    series: pa.Table,
) -> Segment:
    times = START_MS + (number * wide.points + np.arange(wide.points)) * wide.step_ms
    rows = len(tids) * wide.points
    # Each sample its own value: nothing may be gained by values that repeat.
    values = np.random.default_rng(number).random(rows)
    columns = {
        "metric_name": pa.array(names).take(pa.array(np.repeat(np.arange(len(names)), wide.points))),
        "tid": pa.array(np.repeat(tids, wide.points)),
        "timestamp": pa.array(np.tile(times, len(tids))),
        "value": pa.array(values),
    }
    samples = pa.Table.from_arrays(
        [_column(column, columns, rows) for column in SAMPLES.columns], schema=SAMPLES.schema()
    )
    return lake.put_tables(org_id, {SAMPLES.suffix: samples, SERIES.suffix: series})


def _column(column, columns, rows):  # type: ignore[no-untyped-def]
    values = columns.get(column.name)
    if values is None:
        return pa.nulls(rows, column.type)
    return pa.array(values, column.type) if isinstance(values, list) else values.cast(column.type)
