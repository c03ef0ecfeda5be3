"""Entries wait for a slow reader up to a bound, and what is dropped then is named and counted."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from lakerunner.serve.tails.pending import Pending, Piece
from tests.serve.log_batches import PlainEntry, batch_of


def entries(first: int, count: int) -> list[PlainEntry]:
    return [PlainEntry(time, f"line {time}", {"s": "1"}) for time in range(first, first + count)]


def times(piece: Piece | None) -> list[int]:
    assert piece is not None
    return [time.value for batch in piece.batches for time in batch.column("timestamp")]


async def put(pending: Pending, batch: pa.RecordBatch, patience_s: float = 0.05) -> None:
    await pending.put(batch, asyncio.get_running_loop().time() + patience_s)


def test_entries_come_in_order_and_once() -> None:
    async def run() -> None:
        pending = Pending()
        pending.begin_with([batch_of(entries(0, 2)), batch_of(entries(2, 3))])
        await put(pending, batch_of(entries(5, 5)))
        assert times(await pending.take(3, 1)) == [0, 1, 2]
        assert times(await pending.take(100, 1)) == [3, 4, 5, 6, 7, 8, 9]
        assert await pending.take(100, 0.01) is None

    asyncio.run(run())


@pytest.mark.parametrize("bound", [{"max_entries": 4}, {"max_bytes": 200}])
def test_a_reader_that_keeps_up_gets_everything(bound: dict[str, int]) -> None:
    async def run() -> None:
        pending = Pending(**bound)
        putting = asyncio.ensure_future(put(pending, batch_of(entries(0, 500)), patience_s=10))
        found: list[int] = []
        while len(found) < 500:
            piece = await pending.take(3, 1)
            assert piece is not None and not piece.dropped_entries
            found += times(piece)
        assert found == list(range(500))
        await putting

    asyncio.run(run())


def test_what_does_not_fit_in_time_is_dropped_named_and_counted() -> None:
    async def run() -> None:
        pending = Pending(max_entries=4)
        await put(pending, batch_of(entries(0, 3)))
        await put(pending, batch_of(entries(3, 500)))
        pending.drop(batch_of(entries(503, 2)), 7)
        piece = await pending.take(100, 1)
        assert times(piece) == [0, 1, 2, 3]
        assert piece is not None and piece.dropped_entries == 499 + 7
        named = [time.value for batch in piece.dropped for time in batch.column("timestamp")]
        assert named == list(range(4, 104))
        # There is room again.
        await put(pending, batch_of(entries(1_000, 2)))
        again = await pending.take(100, 1)
        assert times(again) == [1_000, 1_001] and again is not None and again.dropped_entries == 0

    asyncio.run(run())


def test_bytes_are_bounded_too() -> None:
    async def run() -> None:
        pending = Pending(max_bytes=1_000)
        long = [PlainEntry(time, "x" * 2_000) for time in range(3)]
        await put(pending, batch_of(long))
        await put(pending, batch_of([PlainEntry(3, "y")]))
        piece = await pending.take(10, 1)
        assert times(piece) == [0] and piece is not None and piece.dropped_entries == 3

    asyncio.run(run())


def test_what_the_reader_asked_for_at_the_start_has_room() -> None:
    async def run() -> None:
        pending = Pending(max_entries=4)
        pending.begin_with([batch_of(entries(0, 9))])
        await put(pending, batch_of(entries(9, 1)))
        piece = await pending.take(100, 1)
        assert times(piece) == list(range(9)) and piece is not None and piece.dropped_entries == 1

    asyncio.run(run())


def test_a_reader_waits_for_entries() -> None:
    async def run() -> None:
        pending = Pending()
        taking = asyncio.ensure_future(pending.take(10, 5))
        await asyncio.sleep(0.01)
        await put(pending, batch_of(entries(0, 1)))
        assert times(await taking) == [0]

    asyncio.run(run())
