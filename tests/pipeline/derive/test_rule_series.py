"""The limit of series holds over all tasks of a day: what comes after it goes to the overflow, and no row is lost."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.index.rule_series import forget_series, full_days
from lakerunner.model.compute import Compute
from lakerunner.model.series_of_day import SeriesOfDay, series_in, union
from lakerunner.pipeline.derive.buckets import BUCKETS_PER_DAY, OVERFLOW, bucketed, overflowing
from lakerunner.pipeline.derive.selected import Coded, Selected
from tests.pipeline.derive.test_rules_in_lake import NOW_S, applied, asked, compact, gaps, ingest, logs
from tests.pipeline.lake import ORG, Lake

RULE = """
groups:
  - name: shop
    rules:
      - materialize: lines_total
        signal: logs
        match: '{service_name="shop"}'
        dimensions: [region]
        max_series: 5
"""
BY_REGION = "sum by (region) (sum_over_time(lines_total[30m]))"


def _regions(lake: Lake) -> dict[str, float]:
    return asked(lake, "promql", BY_REGION)


def test_tasks_share_the_limit_of_a_rule(lake: Lake) -> None:
    applied(lake, RULE)
    for number in range(8):
        # Every object has regions that no other has.
        ingest(lake, logs([(at, "line", f"r{number}-{at}") for at in range(1, 3)]))
    found = _regions(lake)
    assert sum(found.values()) == 16
    assert len(found) == 7 and found[str({"region": OVERFLOW})] == 10, "three objects fill it, five overflow"
    assert "it had more than 5 series" in gaps(lake, "lines_total")
    with lake.database.transaction() as tx:
        [(_, day)] = full_days(tx, ORG, "logs")
    assert day == NOW_S // 86_400
    # Another day has its own series.
    before = sum(_regions(lake).values())
    ingest(lake, logs([(-86_400 + 1, "line", "r0-1")]))
    assert _regions(lake) == found and sum(_regions(lake).values()) == before
    compact(lake)
    assert _regions(lake) == found
    with lake.database.transaction() as tx:
        assert forget_series(tx, 3_600.0, 10) == 0 and forget_series(tx, 0.0, 10) == 2
        assert full_days(tx, ORG, "logs") == frozenset()


def test_known_series_are_not_written_again(lake: Lake) -> None:
    applied(lake, RULE)
    body = [(1, "line", "eu"), (2, "line", "us")]
    ingest(lake, logs(body))
    before = lake.value("SELECT xmin::text FROM rule_series")
    ingest(lake, logs(body))
    assert lake.value("SELECT xmin::text FROM rule_series") == before
    assert lake.value("SELECT series FROM rule_series") == 2 and not lake.value("SELECT is_full FROM rule_series")


@pytest.mark.parametrize("seed", range(5))
def test_a_full_day_keeps_counts_and_loses_dimensions(seed: int) -> None:
    draw = np.random.default_rng(seed)
    size = 200
    times = draw.integers(1, 3 * BUCKETS_PER_DAY, size) * 10**10
    regions = [f"r{number}" for number in draw.integers(0, 9, size)]
    found = bucketed(Selected(times, (Coded.of(pa.array(regions), size),)), Compute.COUNT)
    changed = overflowing(found, [1])
    assert changed.count.sum() == size and changed.series_count == len(changed.labels[0])
    counts: dict[tuple[int, str], float] = {}
    for bucket, series, count in zip(changed.bucket, changed.series, changed.count, strict=True):
        key = int(bucket) // BUCKETS_PER_DAY, changed.labels[0][int(series)].as_py()
        counts[key] = counts.get(key, 0) + count
    expected: dict[tuple[int, str], float] = {}
    for time_ns, region in zip(times.tolist(), regions, strict=True):
        day = (time_ns - 1) // 10**10 // BUCKETS_PER_DAY
        key = day, OVERFLOW if day == 1 else region
        expected[key] = expected.get(key, 0) + 1
    assert counts == expected
    assert overflowing(found, []) is found


def test_sketches_estimate_unions() -> None:
    draw = random.Random(7)
    tids = [np.array([draw.getrandbits(64) - 2**63 for _ in range(30_000)]) for _ in range(2)]
    some, more = (SeriesOfDay.of(1, 0, each).sketch for each in tids)
    both = union([some, more])
    assert series_in(both) == pytest.approx(60_000, rel=0.06)
    assert both == union([more, some, both]) and len(both) <= 4 * 4_096
