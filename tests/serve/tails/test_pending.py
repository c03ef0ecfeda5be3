"""Entries that wait for a slow reader are bounded, and what is dropped is told."""

from __future__ import annotations

import asyncio

from lakerunner.serve.tails.pending import Pending, Piece
from tests.serve.log_batches import PlainEntry, batch_of


def entries(first: int, count: int) -> list[PlainEntry]:
    return [PlainEntry(time, f"line {time}", {"s": "1"}) for time in range(first, first + count)]


def times(piece: Piece | None) -> list[int]:
    assert piece is not None
    return [time.value for batch in piece.batches for time in batch.column("timestamp")]


def test_entries_come_in_order_and_once() -> None:
    async def run() -> None:
        pending = Pending()
        pending.offer(batch_of(entries(0, 5)))
        pending.offer(batch_of(entries(5, 5)))
        assert times(await pending.take(3, 1)) == [0, 1, 2]
        assert times(await pending.take(100, 1)) == [3, 4, 5, 6, 7, 8, 9]
        assert await pending.take(100, 0.01) is None

    asyncio.run(run())


def test_what_does_not_fit_is_dropped_and_told() -> None:
    async def run() -> None:
        pending = Pending(max_entries=4)
        pending.offer(batch_of(entries(0, 3)))
        pending.offer(batch_of(entries(3, 500)))
        piece = await pending.take(100, 1)
        assert times(piece) == [0, 1, 2, 3]
        assert piece is not None and piece.dropped_entries == 499
        named = [time.value for batch in piece.dropped for time in batch.column("timestamp")]
        assert named == list(range(4, 104))
        # There is room again.
        pending.offer(batch_of(entries(1_000, 2)))
        again = await pending.take(100, 1)
        assert times(again) == [1_000, 1_001] and again is not None and again.dropped_entries == 0

    asyncio.run(run())


def test_bytes_are_bounded_too() -> None:
    async def run() -> None:
        pending = Pending(max_bytes=1_000)
        pending.offer(batch_of([PlainEntry(1, "x" * 2_000)]))
        pending.offer(batch_of([PlainEntry(2, "y")]))
        piece = await pending.take(10, 1)
        assert times(piece) == [1] and piece is not None and piece.dropped_entries == 1

    asyncio.run(run())


def test_a_reader_waits_for_entries() -> None:
    async def run() -> None:
        pending = Pending()
        taking = asyncio.ensure_future(pending.take(10, 5))
        await asyncio.sleep(0.01)
        pending.offer(batch_of(entries(0, 1)))
        assert times(await taking) == [0]

    asyncio.run(run())
