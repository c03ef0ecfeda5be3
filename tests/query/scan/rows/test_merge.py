"""Streams become one stream in the order of time, and later ones stay closed while they can."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.query.scan.rows.merge import TimedStream, merge_ordered

_STREAMS = st.lists(st.lists(st.lists(st.integers(0, 8), max_size=4), max_size=4), max_size=4)


def batch(times: list[int], stream: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"t": pa.array(times, pa.timestamp("ns")), "stream": pa.array([stream] * len(times), pa.int64())}
    )


@given(streams=_STREAMS, newest=st.booleans(), limit=st.one_of(st.none(), st.integers(0, 20)))
def test_rows_come_in_the_order_of_time_then_of_streams(
    streams: list[list[list[int]]], newest: bool, limit: int | None
) -> None:
    sign = -1 if newest else 1
    made = []
    wanted = []
    for number, batches in enumerate(streams):
        flat = sorted((time for times in batches for time in times), reverse=newest)
        cuts = iter(flat)
        parts = [batch([next(cuts) for _ in times], number) for times in batches]
        made.append(TimedStream(flat[0] if flat else 0, lambda parts=parts: iter(parts)))
        wanted += [(sign * time, number) for time in flat]
    got = [
        (sign * time, stream)
        for each in merge_ordered(made, "t", newest_first=newest, limit=limit)
        for time, stream in zip(
            each.column("t").cast(pa.int64()).to_pylist(), each.column("stream").to_pylist(), strict=True
        )
    ]
    assert got == sorted(wanted)[:limit]


def test_a_stream_is_opened_when_the_order_reaches_it() -> None:
    opened: list[int] = []

    def stream(first: int) -> TimedStream:
        def batches() -> Iterator[pa.RecordBatch]:
            opened.append(first)
            yield batch([first, first + 1], first)

        return TimedStream(first, batches)

    merged = merge_ordered([stream(first) for first in (20, 0, 10)], "t", newest_first=False)
    next(merged)
    assert opened == [0]
    next(merged)
    assert opened == [0, 10]
