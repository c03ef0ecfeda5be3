"""What is announced to whom."""

from __future__ import annotations

import uuid

import pytest

from lakerunner.bus.announce import segments_made
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
    assert [message.topic for message in messages] == [f"boxer.{signal}.{stage}" for stage in stages] * 2
    assert {message.key for message in messages} == {str(ORG)}
    assert [message.topic for message in segments_made(made, ["compact"])] == [f"boxer.{signal}.compact"] * 2
