"""What the stage made is what queries read: the same answers as raw samples, before and after late samples."""

from __future__ import annotations

import random

from lakerunner.query.lake import open_lake
from lakerunner.query.lake_query import LakeQuery
from lakerunner.query.promql.language import LANGUAGE
from lakerunner.query.run import run
from lakerunner.query.series.results import MatrixResult
from lakerunner.query.series.times import QueryTimes
from lakerunner.query.vectors.context import EngineOptions
from tests.pipeline.lake import ORG, Lake
from tests.pipeline.rollup.naive import STALE, Sample
from tests.pipeline.rollup.tier_lake import DAY_MS, HOUR_MS, add, roll_up_all

TIMES = QueryTimes(DAY_MS + HOUR_MS, DAY_MS + 24 * HOUR_MS, HOUR_MS)
TEXTS = (
    "rate(metric_0[1h])",
    "increase(metric_1[2h])",
    "metric_0",
    "max_over_time(metric_1[1h])",
    "count_over_time(metric_0[3h])",
    "sum_over_time(metric_1[1h])",
)


def _samples(seed: int, step_ms: int) -> list[Sample]:
    """Counters of whole numbers with resets, gaps and stale markers."""
    rng = random.Random(seed)
    found = []
    for tid in range(4):
        value = 0
        for time in range(DAY_MS + step_ms, DAY_MS + 24 * HOUR_MS + 1, step_ms):
            value = 0 if rng.random() < 0.02 else value + rng.randrange(9)
            if rng.random() < 0.9:
                found.append(Sample(tid, time, STALE if rng.random() < 0.01 else float(value)))
    return found


def _answer(source: LakeQuery, text: str, max_tier_s: int) -> dict[str, tuple[list[int], list[float]]]:
    plan = LANGUAGE.compile(text, TIMES, EngineOptions(max_tier_s=max_tier_s))
    source.prepare(plan.leaves)
    value = run(plan, source, lambda: None).value
    assert isinstance(value, MatrixResult)
    return {str(one.labels): (one.timestamps_ms.tolist(), one.values.tolist()) for one in value.series}


def test_queries_read_what_the_stage_made(lake: Lake) -> None:
    add(lake, _samples(1, 120_000))
    assert roll_up_all(lake)
    opened = open_lake(lake.settings, lake.database, own_scans="test")

    def tiers_after_comparing() -> set[int]:
        read: set[int] = set()
        for text in TEXTS:
            source = opened.query(ORG)
            expected = _answer(opened.query(ORG), text, 0)
            assert expected
            assert _answer(source, text, 86_400) == expected, text
            read |= {tier_s for explain in source.stats.explains for tier_s in explain.tiers_s}
        return read

    try:
        assert tiers_after_comparing() == {3_600}
        # Late samples just after full hours.
        add(lake, [Sample(0, DAY_MS + 5 * HOUR_MS + 7, 4.0), Sample(2, DAY_MS + 6 * HOUR_MS + 1, 90.0)])
        assert tiers_after_comparing() == {0, 300}
        assert roll_up_all(lake)
        assert tiers_after_comparing() == {3_600}
    finally:
        opened.close()
