"""What is merged with what, and when."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.ids import fresh_id
from lakerunner.model.segment import Segment
from lakerunner.model.time import NS_PER_DAY, NS_PER_HOUR, NS_PER_S, TimeRange
from lakerunner.pipeline.compact.windows import Unit, bundles, window_of
from lakerunner.runtime.settings import PipelineSettings

NOW_NS = 20_000 * NS_PER_DAY + 12 * NS_PER_HOUR
HOUR_NS = 12 * NS_PER_HOUR + 20_000 * NS_PER_DAY
SETTINGS = PipelineSettings(compact_segments=4, compact_min_bytes=500 << 20, compact_target_bytes=1_000 << 20)
MB = 1 << 20


def segment(
    start_ns: int = HOUR_NS, size_mb: float = 1, level: int = 0, width_ns: int = NS_PER_S, tier_s: int = 0
) -> Segment:
    times = TimeRange(start_ns, start_ns + width_ns)
    return Segment(fresh_id(), uuid.UUID(int=1), "c", "logs", times, 10, int(size_mb * MB), tier_s, level)


def chosen(segments: list[Segment], now_ns: int = NOW_NS) -> list[list[float]]:
    window = window_of(segments[0], now_ns, SETTINGS)
    return [[each.size_bytes / MB for each in bundle] for bundle in bundles(segments, window, now_ns, SETTINGS)]


@pytest.mark.parametrize(
    ("start_ns", "width_ns", "unit"),
    [
        (HOUR_NS, NS_PER_HOUR, Unit.HOUR),
        (HOUR_NS, NS_PER_HOUR + 1, Unit.DAY),
        (HOUR_NS - 2 * NS_PER_DAY, NS_PER_S, Unit.DAY),
        (HOUR_NS, NS_PER_DAY, Unit.MONTH),
        (HOUR_NS, 40 * NS_PER_DAY, Unit.YEAR),
        (0, 1_000 * NS_PER_DAY, Unit.EVER),
    ],
)
def test_the_window_is_the_smallest_that_holds_all_rows(start_ns: int, width_ns: int, unit: Unit) -> None:
    one = segment(start_ns, width_ns=width_ns)
    window = window_of(one, NOW_NS, SETTINGS)
    assert window.unit is unit
    assert window.start_ns <= one.time_range.start_ns and one.time_range.end_ns <= window.end_ns


def test_while_an_hour_lasts_segments_of_one_level_wait_for_enough() -> None:
    assert chosen([segment() for _ in range(3)]) == []
    assert chosen([segment() for _ in range(4)]) == [[1, 1, 1, 1]]
    assert chosen([*(segment() for _ in range(3)), segment(level=1)]) == []
    assert chosen([segment(size_mb=260), segment(size_mb=260)]) == [[260, 260]]


def test_after_an_hour_what_is_left_is_merged_across_levels() -> None:
    later_ns = HOUR_NS + NS_PER_HOUR + int(SETTINGS.compact_age_s) * NS_PER_S
    assert chosen([segment(), segment(level=2)], later_ns) == [[1, 1]]
    assert chosen([segment()], later_ns) == []


def test_a_late_row_does_not_rewrite_a_large_segment() -> None:
    later_ns = HOUR_NS + 2 * NS_PER_HOUR
    assert chosen([segment(size_mb=400), segment(size_mb=0.1)], later_ns) == []
    assert sorted(chosen([segment(size_mb=90), *(segment(size_mb=10) for _ in range(3))], later_ns)[0]) == [
        10,
        10,
        10,
        90,
    ]


def test_large_segments_stay() -> None:
    later_ns = HOUR_NS + 2 * NS_PER_HOUR
    assert chosen([segment(size_mb=600), segment(size_mb=600), segment(size_mb=300)], later_ns) == []


def test_hours_of_an_old_day_are_one_window() -> None:
    later_ns = HOUR_NS + 2 * NS_PER_DAY
    hours = [segment(HOUR_NS + hour * NS_PER_HOUR) for hour in range(3)]
    assert {window_of(each, later_ns, SETTINGS) for each in hours} == {window_of(hours[0], later_ns, SETTINGS)}
    assert chosen(hours, later_ns) == [[1, 1, 1]]


def test_rollups_are_left_alone() -> None:
    assert chosen([segment(tier_s=60) for _ in range(9)]) == []


@given(st.lists(st.floats(0.01, 450), min_size=1, max_size=200), st.booleans())
@settings(deadline=None, max_examples=50)
def test_merging_ends_with_few_segments(sizes: list[float], is_over: bool) -> None:
    """Bundles share no segment and stay within their limits; over and over, they leave a bounded number."""
    now_ns = NOW_NS + (3 * NS_PER_HOUR if is_over else 0)
    left = [segment(size_mb=size) for size in sizes]
    window = window_of(left[0], now_ns, SETTINGS)
    rewritten = 0
    while found := bundles(left, window, now_ns, SETTINGS):
        taken = [each.segment_id for bundle in found for each in bundle]
        assert len(taken) == len(set(taken))
        for bundle in found:
            total = sum(each.size_bytes for each in bundle)
            assert 2 <= len(bundle) <= SETTINGS.compact_max_inputs
            assert total <= SETTINGS.compact_target_bytes
            rewritten += total
            left.append(segment(size_mb=total / MB, level=1 + max(each.level for each in bundle)))
        left = [each for each in left if each.segment_id not in set(taken)]
    small = [each for each in left if each.size_bytes < SETTINGS.compact_min_bytes]
    # Each is four times as large as all smaller ones together, or there are too few of its level.
    assert len(small) <= (8 if is_over else 3 * 8)
    assert rewritten <= 8 * sum(max(1.0, size) for size in sizes) * MB
