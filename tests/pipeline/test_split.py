from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.read import read_object
from lakerunner.model.signals import LOGS, METRICS
from lakerunner.model.time import MAX_TIME_NS, NS_PER_DAY, NS_PER_HOUR, NS_PER_MS
from lakerunner.pipeline.split import (
    MAX_FAR_PARTS,
    NEAR_FUTURE_HOURS,
    NEAR_PAST_HOURS,
    merged,
    parts,
    skewed_rows,
)
from tests.pipeline.lake import otlp

HOUR_MS = NS_PER_HOUR // NS_PER_MS
NOW_NS = 1_767_225_600_000_000_000


def samples(points: list[tuple[int, int]]) -> dict[str, pa.Table]:
    """Samples (series, ms) and their series."""
    rows = METRICS.rows.schema()
    described = METRICS.tables[1].schema()
    tids = sorted({tid for tid, _ in points})
    table = pa.Table.from_pylist(
        [{"metric_name": f"m{tid % 3}", "tid": tid, "timestamp": at, "value": 1.0} for tid, at in points], schema=rows
    )
    series = [{"tid": tid, "metric_name": f"m{tid % 3}", "labels": [("a", str(tid))]} for tid in tids]
    return {"": table, ".series": pa.Table.from_pylist(series, schema=described)}


points = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 5 * HOUR_MS)), min_size=1, max_size=60)


@given(points)
def test_parts_hold_every_row_once_within_one_hour_and_in_order(given_points: list[tuple[int, int]]) -> None:
    seen: list[tuple[int, int]] = []
    hours = []
    for part in parts(METRICS, samples(given_points), NOW_NS):
        table = part[""]
        times = table.column("timestamp").cast(pa.int64()).to_pylist()
        assert len({at // HOUR_MS for at in times}) == 1
        hours.append(times[0] // HOUR_MS)
        assert table.equals(table.sort_by([(name, "ascending") for name in METRICS.rows.sort_key]))
        assert set(part[".series"].column("tid").to_pylist()) == set(table.column("tid").to_pylist())
        seen += list(zip(table.column("tid").to_pylist(), times, strict=True))
    assert sorted(seen) == sorted(given_points)
    assert len(hours) == len(set(hours))


#: Times in hours from now -> the number of parts.
SPREADS = {
    "few old hours": (range(-1_000, -1_000 + MAX_FAR_PARTS), MAX_FAR_PARTS),
    "many old hours by day": (range(-40 * 24, -34 * 24), 6),
    "many old days by month": (range(-731 * 24, -2 * 24, 24), 24),
    "the present by hour": (range(-NEAR_PAST_HOURS, NEAR_FUTURE_HOURS), NEAR_PAST_HOURS + NEAR_FUTURE_HOURS),
    "everything": (range(-400_000, 1_900_000, 97), None),
}


@pytest.mark.parametrize(("hours", "count"), SPREADS.values(), ids=SPREADS)
def test_scattered_rows_make_few_parts_and_keep_their_times(hours: Iterable[int], count: int | None) -> None:
    spread = [(1, NOW_NS // NS_PER_MS + hour * HOUR_MS) for hour in hours]
    made = [
        part[""].column("timestamp").cast(pa.int64()).to_pylist() for part in parts(METRICS, samples(spread), NOW_NS)
    ]
    assert sorted(at for part in made for at in part) == sorted(at for _, at in spread)
    assert count is None or len(made) == count
    assert len(made) <= NEAR_PAST_HOURS + NEAR_FUTURE_HOURS + MAX_FAR_PARTS


def test_rows_of_the_present_stay_by_hour_beside_scattered_ones() -> None:
    now_ms = NOW_NS // NS_PER_MS
    near = [(1, now_ms - hour * HOUR_MS) for hour in range(3)]
    far = [(1, at) for at in range(1, MAX_TIME_NS // NS_PER_MS, 40 * 24 * HOUR_MS)]
    times = [part[""].column("timestamp").cast(pa.int64()) for part in parts(METRICS, samples(near + far), NOW_NS)]
    bounds = sorted((pc.min(each).as_py(), pc.max(each).as_py()) for each in times)
    assert len(bounds) == 5, "three hours, one part before them and one after"
    assert (
        bounds[0][1] < now_ms - NEAR_PAST_HOURS * HOUR_MS
        and bounds[-1][0] > now_ms + NEAR_FUTURE_HOURS * HOUR_MS - HOUR_MS
    )


def test_1970_and_2100_are_skewed_and_last_week_is_not() -> None:
    skewed = [0, NOW_NS - 400 * NS_PER_DAY, NOW_NS + 2 * NS_PER_DAY]
    fine = [NOW_NS, NOW_NS - 7 * NS_PER_DAY, NOW_NS + NS_PER_HOUR]
    assert skewed_rows(np.array(skewed + fine), NOW_NS) == 3


def test_merging_keeps_all_rows_and_describes_a_series_once() -> None:
    one, two = samples([(1, 5), (2, 6)]), samples([(2, 7), (3, 8)])
    whole = merged(METRICS, [one, two])
    assert whole[""].num_rows == 4
    assert sorted(whole[".series"].column("tid").to_pylist()) == [1, 2, 3]


def test_merged_logs_keep_the_rows_of_each_object() -> None:
    bodies = [otlp(LOGS, 30, seed) for seed in (1, 2)]
    decoded = [read_object(body, LOGS).tables for body in bodies]
    whole = merged(LOGS, decoded)
    assert whole[""].num_rows == 60
    [part] = parts(LOGS, whole, NOW_NS)
    messages = [message for one in decoded for message in one[""].column("message").to_pylist()]
    assert sorted(part[""].column("message").to_pylist()) == sorted(messages)


def test_no_rows_make_no_parts() -> None:
    assert list(parts(METRICS, samples([(1, 1)]) | {"": METRICS.rows.schema().empty_table()}, NOW_NS)) == []
