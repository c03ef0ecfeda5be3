"""Rows that go on at another worker: none is missed and none repeated, or the stream ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from lakerunner.model.errors import Unavailable
from lakerunner.query.fanout.answer import EvaluateAnswer
from lakerunner.query.fanout.resume import Delivered, resumed

ROWS = list(range(10))


def sent(times: Sequence[int], size: int, failed: Sequence[str] = ()) -> Iterator[pa.RecordBatch | EvaluateAnswer]:
    for begin in range(0, len(times), size):
        part = pa.array(times[begin : begin + size], pa.timestamp("ns", "UTC"))
        yield pa.RecordBatch.from_arrays([part], names=["timestamp"])
    yield EvaluateAnswer.of_note({"tally": {"failed": dict.fromkeys(failed, "")}, "cpu_s": 0.0, "costs": []}, "here")


def times_of(parts: Iterator[pa.RecordBatch | EvaluateAnswer], delivered: Delivered, most: int = 1_000) -> list[int]:
    found: list[int] = []
    for part in parts:
        if isinstance(part, pa.RecordBatch):
            delivered.add(part)
            found += part.column(0).cast(pa.int64()).to_pylist()
        if len(found) >= most:
            break
    return found


@pytest.mark.parametrize("size", [1, 3, 4, 10])
@pytest.mark.parametrize("again", [1, 2, 7, 10])
def test_the_rest_follows(size: int, again: int) -> None:
    delivered = Delivered()
    first = times_of(resumed(sent(ROWS, size), delivered), delivered, 4)
    assert first + times_of(resumed(sent(ROWS, again), delivered), delivered) == ROWS


@pytest.mark.parametrize("other", [[0, 1, 3, *range(4, 12)], [9, *ROWS], ROWS[:3], []])
def test_other_rows_are_not_continued(other: list[int]) -> None:
    """The first worker left out a segment that the second can read, or the other way round."""
    delivered = Delivered()
    times_of(resumed(sent(ROWS, 2), delivered), delivered, 6)
    with pytest.raises(Unavailable, match="cannot continue the rows"):
        times_of(resumed(sent(other, 3), delivered), delivered)


def test_a_failure_after_the_delivered_rows_ends_the_stream_too() -> None:
    delivered = Delivered()
    times_of(resumed(sent(ROWS, 2), delivered), delivered, 6)
    with pytest.raises(Unavailable, match="cannot continue the rows"):
        times_of(resumed(sent(ROWS, 3, ["a segment"]), delivered), delivered)
