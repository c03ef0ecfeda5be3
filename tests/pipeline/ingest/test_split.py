from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.formats.read import read_object
from lakerunner.model.signals import LOGS, METRICS
from lakerunner.model.time import NS_PER_HOUR, NS_PER_MS
from lakerunner.pipeline.ingest.split import MAX_HOURS, merged, parts
from tests.pipeline.lake import otlp

HOUR_MS = NS_PER_HOUR // NS_PER_MS


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
    for part in parts(METRICS, samples(given_points)):
        table = part[""]
        times = table.column("timestamp").cast(pa.int64()).to_pylist()
        assert len({at // HOUR_MS for at in times}) == 1
        hours.append(times[0] // HOUR_MS)
        assert table.equals(table.sort_by([(name, "ascending") for name in METRICS.rows.sort_key]))
        assert set(part[".series"].column("tid").to_pylist()) == set(table.column("tid").to_pylist())
        seen += list(zip(table.column("tid").to_pylist(), times, strict=True))
    assert sorted(seen) == sorted(given_points)
    assert len(hours) == len(set(hours))


def test_rows_spread_over_too_many_hours_are_split_by_day() -> None:
    spread = [(1, hour * HOUR_MS) for hour in range(3 * MAX_HOURS)]
    made = list(parts(METRICS, samples(spread)))
    assert len(made) == 3 * MAX_HOURS // 24
    assert sum(part[""].num_rows for part in made) == len(spread)


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
    [part] = parts(LOGS, whole)
    messages = [message for one in decoded for message in one[""].column("message").to_pylist()]
    assert sorted(part[""].column("message").to_pylist()) == sorted(messages)


def test_no_rows_make_no_parts() -> None:
    assert list(parts(METRICS, samples([(1, 1)]) | {"": METRICS.rows.schema().empty_table()})) == []
