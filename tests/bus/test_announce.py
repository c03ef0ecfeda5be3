"""What is announced to whom."""

from __future__ import annotations

import uuid

import pytest

from lakerunner.bus.announce import segments_made
from lakerunner.bus.messages import WindowsChanged, decode
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Signal
from lakerunner.model.signals import LOGS, METRICS
from lakerunner.model.time import TimeRange

ORG = uuid.UUID(int=7)


@pytest.mark.parametrize(("signal", "stages"), [(LOGS, ["compact"]), (METRICS, ["compact", "rollup"])], ids=str)
def test_segments_are_announced_once_per_day_and_stage(signal: Signal, stages: list[str]) -> None:
    day_ns = 86_400 * 10**9
    made = [
        Segment(uuid.uuid4(), ORG, "c", signal.name, TimeRange(start, start + 1), 1, 1)
        for start in (0, 5, day_ns, day_ns + 7)
    ]
    messages = segments_made(made)
    assert [message.topic for message in messages] == [f"boxer.{signal}.compact"] * 2 + [
        f"boxer.{signal}.{stage}" for stage in stages[1:]
    ]
    assert {message.key for message in messages} == {str(ORG)}
    assert [message.topic for message in segments_made(made, ["compact"])] == [f"boxer.{signal}.compact"] * 2


def test_the_windows_of_raw_samples_are_announced() -> None:
    hour_ns = 3_600 * 10**9
    rows = TimeRange(hour_ns, 2 * hour_ns)
    made = [Segment(uuid.uuid4(), ORG, "c", METRICS.name, rows, 1, 1, tier_s=tier_s) for tier_s in (0, 60)]
    [message] = segments_made(made, ["rollup"])
    # A row at the full hour belongs to the window that ends there.
    hours, day = (0, hour_ns), 0
    assert decode(WindowsChanged, message.payload).windows == (
        *((60, start) for start in hours), *((300, start) for start in hours), (3_600, day), (86_400, day),
    )  # fmt: skip
