"""All topics, derived from the signals, and the partition of a key."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from lakerunner.bus.messages import (
    OBJECT_STAGE,
    REQUESTED_STAGES,
    SEGMENT_STAGES,
    WINDOW_STAGE,
    DeadLetter,
    Message,
    ObjectSeen,
    SegmentsMade,
    WindowsChanged,
    WorkReady,
)
from lakerunner.model.errors import BadInput
from lakerunner.model.signal import Signal
from lakerunner.model.signals import SIGNALS

DEAD_PREFIX = "dead."


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and the type of its messages. The name lacks the deployment's prefix, which only the bus knows."""

    name: str
    message: type[Message]

    @property
    def is_dead(self) -> bool:
        return self.name.startswith(DEAD_PREFIX)

    def __str__(self) -> str:
        return self.name


def objects(signal: Signal) -> Topic:
    """Return the topic of raw objects, from intake to the boxer."""
    return Topic(f"objstore.ingest.{signal}", ObjectSeen)


def work(signal: Signal, stage: str) -> Topic:
    """Work items, from a boxer to the stage that does them."""
    _check_stage(signal, stage)
    return Topic(f"segments.{signal}.{stage}", WorkReady)


def made(signal: Signal, stage: str) -> Topic:
    """New segments, or the windows that they changed, to the boxer of the stage that may take them further."""
    _check_stage(signal, stage)
    if stage == OBJECT_STAGE:
        raise BadInput(f"cannot name a topic of segments for {stage}: it takes raw objects")
    return Topic(f"boxer.{signal}.{stage}", WindowsChanged if stage == WINDOW_STAGE else SegmentsMade)


def dead(topic: str) -> Topic:
    """Return the dead-letter topic of a topic. Dead letters have no dead letters themselves."""
    return Topic(DEAD_PREFIX + topic, DeadLetter)


def segment_stages(signal: Signal) -> tuple[str, ...]:
    """The stages to which new segments of the signal are announced."""
    return tuple(stage for stage in SEGMENT_STAGES if stage != WINDOW_STAGE or signal.rolls_up)


def _check_stage(signal: Signal, stage: str) -> None:
    if stage == WINDOW_STAGE and not signal.rolls_up:
        raise BadInput(f"cannot name a rollup topic of {signal}: that signal has no coarser tiers")
    if stage not in (OBJECT_STAGE, *SEGMENT_STAGES, *REQUESTED_STAGES):
        raise BadInput(f"cannot name a topic of {stage}: there is no such stage")


def _of_signal(signal: Signal) -> tuple[Topic, ...]:
    return (
        objects(signal),
        work(signal, OBJECT_STAGE),
        *(
            topic
            for stage in (*segment_stages(signal), *REQUESTED_STAGES)
            for topic in (made(signal, stage), work(signal, stage))
        ),
    )


#: The topics of the pipeline, without their dead letters.
LIVE_TOPICS: tuple[Topic, ...] = tuple(topic for signal in SIGNALS for topic in _of_signal(signal))
#: All topics, with the dead-letter topics.
TOPICS: tuple[Topic, ...] = LIVE_TOPICS + tuple(dead(topic.name) for topic in LIVE_TOPICS)
_BY_NAME = {topic.name: topic for topic in TOPICS}


def topic_named(name: str) -> Topic:
    """Return the topic with this name.

    >>> topic_named("segments.metrics.rollup").message.__name__
    'WorkReady'
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise BadInput(f"cannot find a topic named {name!r}", hint="see docs/formats/messages.md") from None


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, by CRC-32, like librdkafka's `consistent` partitioner.

    >>> partition_of("an org", 16) == partition_of("an org", 16)
    True
    """
    return zlib.crc32(key.encode()) % partitions
