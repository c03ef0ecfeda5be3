"""Counts of durations equal those of a plain loop, for any groups, times and durations."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.traceql.duration_buckets import DurationBuckets, counted
from lakerunner.query.traceql.metric_cells import BUCKET, Labelled
from lakerunner.query.traceql.repeats import Seen, keys_of

_spans = st.lists(
    st.tuples(
        st.integers(-50, 150) | st.integers(-(1 << 60), 1 << 60),
        st.integers(0, 9) | st.integers(0, (1 << 63) - 1),
        st.integers(0, 2),
    ),
    min_size=1,
)


@given(_spans, st.integers(1, 40), st.integers(1, 5), st.integers(0, 100))
def test_counts_equal_a_loop(spans: list[tuple[int, int, int]], width: int, steps: int, first: int) -> None:
    start, duration, group = np.array(spans, np.int64).T.copy()
    label = Labelled("by", group, 3, lambda code: f"s{code}")
    found = DurationBuckets(10)
    part, seen = counted([label], start, duration, first, width, steps, 10)
    found.add(part)
    expected: Counter[tuple[str, str, int]] = Counter()
    at_steps = 0
    for begin, length, number in spans:
        step = -((first - begin) // width)
        if 0 <= step < steps:
            at_steps += 1
            if length >= 2:
                bound = 2.0 ** (length - 1).bit_length() / 1e9
                expected[f"s{number}", f"f{bound!r}", step] += 1
    assert seen == at_steps
    assert expected == Counter(
        {
            (labels.get("by"), labels.get(BUCKET), step): int(count)
            for labels, cells in found.groups().items()
            for step, count in enumerate(cells.count)
            if count
        }
    )


@given(_spans)
def test_keys_of_repeats_equal_those_of_columns(spans: list[tuple[int, int, int]]) -> None:
    start, duration, _ = np.array(sorted(spans), np.int64).T.copy()
    seen = Seen.of("segment", start, duration)
    keys = keys_of(start, duration)
    beside = [
        row in (0, len(spans) - 1) or start[row] in (start[row - 1], start[min(row + 1, len(spans) - 1)])
        for row in range(len(spans))
    ]
    assert seen.keys.tolist() == keys.tolist()
    assert seen.near.tolist() == keys[np.array(beside)].tolist()
    assert (seen.first_ns, seen.last_ns) == (start.min(), start.max())
