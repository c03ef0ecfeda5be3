"""One entry per interval, up to a limit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakerunner.model.errors import LimitHit
from lakerunner.serve.loki.entries import Thinning, within_bytes
from tests.serve.log_batches import PlainEntry, batch_of


def kept(times: list[int], thinning: Thinning, cut: int = 3) -> list[int]:
    entries = [PlainEntry(time, "x") for time in times]
    batches = thinning.thinned(batch_of(part) for part in (entries[:cut], entries[cut:]) if part)
    return [time.value for batch in batches for time in batch.column("timestamp")]


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 6])
def test_intervals(cut: int) -> None:
    forward = Thinning(10, 100, newest_first=False)
    assert kept([0, 5, 10, 19, 20, 31], forward, cut) == [0, 10, 20, 31]
    assert kept([31, 20, 19, 10, 5, 0], Thinning(10, 100, newest_first=True), cut) == [31, 20, 10, 0]
    assert kept([0, 5, 10, 19, 20, 31], Thinning(10, 2, newest_first=False), cut) == [0, 10]
    assert kept([0, 5, 10, 19, 20, 31], Thinning(0, 4, newest_first=False), cut) == [0, 5, 10, 19]


def test_an_answer_is_limited_in_bytes() -> None:
    read: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(10):
            read.append(number)
            yield batch_of([PlainEntry(number, "x" * 1_000)])

    with pytest.raises(LimitHit, match=r"api\.max_answer_bytes"):
        within_bytes(batches(), 5_000)
    assert read == [0, 1, 2, 3, 4]
    assert len(within_bytes(batches(), 50_000)) == 10


def test_the_scan_is_limited_without_an_interval() -> None:
    assert Thinning(0, 7, newest_first=True).scan_limit == 7
    assert Thinning(1, 7, newest_first=True).scan_limit is None
