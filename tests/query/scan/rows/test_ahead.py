"""The next segments of an ordered scan are gathered while earlier ones are used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest

from lakerunner.model.errors import LimitHit, Unavailable
from lakerunner.query.scan.rows import ahead
from lakerunner.query.scan.rows.ahead import GatheredAhead
from lakerunner.query.scan.rows.request import RowSegment, RowTally, Spend

_SEGMENTS = [RowSegment(UUID(int=number), f"key-{number}", 1_000, 0, 1) for number in range(6)]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def _rows(segment: RowSegment) -> pa.RecordBatch:
    return pa.record_batch({"x": [segment.segment_id.int] * 100})


def _gathering(seen: list[tuple[int, int]], wait: Callable[[], object] = lambda: None) -> ahead.Gather:
    """Notes which thread gathers which segment."""

    def gather(segment: RowSegment, tally: RowTally, spend: Spend) -> pa.RecordBatch:
        seen.append((segment.segment_id.int, threading.get_ident()))
        wait()
        spend(100)
        tally.rows_found += 100
        return _rows(segment)

    return gather


def test_rows_come_in_order_and_are_counted(pool: ThreadPoolExecutor) -> None:
    seen: list[tuple[int, int]] = []
    gathered, tally = GatheredAhead(pool, _SEGMENTS, _gathering(seen), lambda _: None), RowTally()
    assert [gathered.take(each, tally) for each in _SEGMENTS] == list(map(_rows, _SEGMENTS))
    assert sorted(number for number, _ in seen) == list(range(6))
    assert tally.rows_found == 600


def test_the_second_segment_is_gathered_while_the_caller_gathers_the_first(pool: ThreadPoolExecutor) -> None:
    both, seen = threading.Barrier(2, timeout=20), list[tuple[int, int]]()
    gathered = GatheredAhead(pool, _SEGMENTS[:2], _gathering(seen, both.wait), lambda _: None)
    assert gathered.take(_SEGMENTS[0], RowTally()) == _rows(_SEGMENTS[0])
    assert gathered.take(_SEGMENTS[1], RowTally()) == _rows(_SEGMENTS[1])
    assert dict(seen)[0] == threading.get_ident() != dict(seen)[1]


@pytest.mark.parametrize("without", ["a pool", "small segments"])
def test_nothing_is_gathered_ahead(pool: ThreadPoolExecutor, without: str) -> None:
    segments = [replace(each, size_bytes=1 << 30) for each in _SEGMENTS] if without == "small segments" else _SEGMENTS
    seen: list[tuple[int, int]] = []
    gathered = GatheredAhead(None if without == "a pool" else pool, segments, _gathering(seen), lambda _: None)
    gathered.take(segments[0], RowTally())
    assert seen == [(0, threading.get_ident())]


def test_an_error_is_raised_where_the_rows_are_taken_and_they_can_be_taken_again(pool: ThreadPoolExecutor) -> None:
    failed: list[int] = []

    def gather(segment: RowSegment, tally: RowTally, spend: Spend) -> pa.RecordBatch:
        if segment.segment_id.int == 1 and not failed:
            failed.append(1)
            raise Unavailable("cannot read it")
        return _rows(segment)

    gathered = GatheredAhead(pool, _SEGMENTS[:3], gather, lambda _: None)
    assert gathered.take(_SEGMENTS[0], RowTally()) == _rows(_SEGMENTS[0])
    with pytest.raises(Unavailable):
        gathered.take(_SEGMENTS[1], RowTally())
    assert gathered.take(_SEGMENTS[1], RowTally()) == _rows(_SEGMENTS[1])
    assert gathered.take(_SEGMENTS[2], RowTally()) == _rows(_SEGMENTS[2])


def test_what_is_gathered_ahead_counts_as_held(pool: ThreadPoolExecutor) -> None:
    gathered_second, held = threading.Event(), list[int]()

    def gather(segment: RowSegment, tally: RowTally, spend: Spend) -> pa.RecordBatch:
        if segment.segment_id.int == 0:
            assert gathered_second.wait(20)
            held.clear()
            spend(7)
        else:
            spend(1_000)
            gathered_second.set()
        return _rows(segment)

    def spend(held_bytes: int) -> None:
        held.append(held_bytes)
        if held_bytes > 5_000:
            raise LimitHit("cannot hold more")

    gathered = GatheredAhead(pool, _SEGMENTS[:2], gather, spend)
    gathered.take(_SEGMENTS[0], RowTally())
    # Either while it is gathered, or its rows.
    assert held[0] in (1_007, 807)
    gathered.take(_SEGMENTS[1], RowTally())
    held.clear()
    gathered.spend(3)
    assert held == [3]
